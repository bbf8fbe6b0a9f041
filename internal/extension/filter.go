package extension

import (
	"bytes"
	"encoding/binary"
)

// filter tells quickly that no extension can have anything to do with a key: it has
// a bit for the first directory of every pattern, and most keys of a cluster lie in
// directories that no extension knows.
type filter [64]uint64

func (f *filter) add(p Pattern) {
	bit := first([]byte(p))
	f[bit/64] |= 1 << (bit % 64)
}

func (f *filter) has(key []byte) bool {
	bit := first(key)
	return f[bit/64]>>(bit%64)&1 == 1
}

// first is the bit of a key's first directory; a key in none is its own.
func first(key []byte) uint64 {
	const odd = 0x9e3779b97f4a7c15
	from := 0
	if len(key) > 0 && key[0] == '/' {
		from = 1
	}
	if i := bytes.IndexByte(key[from:], '/'); i >= 0 {
		key = key[:from+i]
	}
	x := uint64(len(key))
	for ; len(key) >= 8; key = key[8:] {
		x = (x ^ binary.LittleEndian.Uint64(key)) * odd
	}
	for _, c := range key {
		x = (x ^ uint64(c)) * odd
	}
	return x >> 52
}

// Concerns tells whether an extension may have to do with a key, or the extension
// manager has; false is certain.
func (r *Registry) Concerns(key []byte) bool {
	return bytes.HasPrefix(key, []byte(Root)) || r != nil && r.patterns.has(key)
}
