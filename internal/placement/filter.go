package placement

import "encoding/binary"

const filterBits = 12

// Filter tells quickly that a key has nothing to do with any of the keys and prefixes
// that were added: it has a bit for the first directory of each, and a key in none is
// its own. Most keys of a cluster lie in directories that a filter doesn't know.
type Filter [1 << filterBits / 64]uint64

// Add notes a key, or a prefix that ends in a slash below the root.
func (f *Filter) Add(key []byte) {
	bit := top(key)
	f[bit/64] |= 1 << (bit % 64)
}

// Has tells whether something under the key's first directory may have been added;
// false is certain.
func (f *Filter) Has(key []byte) bool {
	bit := top(key)
	return f[bit/64]>>(bit%64)&1 == 1
}

// top is the bit of a key's first directory.
func top(key []byte) uint64 {
	const odd = 0x9e3779b97f4a7c15
	if first, _ := levels(key); first > 0 {
		key = key[:first]
	}
	x := uint64(len(key))
	if n := len(key); n >= 8 {
		x ^= binary.LittleEndian.Uint64(key[n-8:])
	} else {
		for _, c := range key {
			x = x<<8 ^ uint64(c)
		}
	}
	return x * odd >> (64 - filterBits)
}
