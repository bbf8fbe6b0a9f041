package password

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// mostKnown is how many passwords are remembered.
const mostKnown = 10_000

// known remembers which passwords matched which hashes, as digests under a secret of the process.
// A hash has a salt of its own, so what is remembered of one says nothing of any other, and is of
// no use once the password has been changed.
type known struct {
	secret []byte

	mu  sync.RWMutex
	all map[[sha256.Size]byte]struct{}
}

func (k *known) digest(hash, password []byte) (d [sha256.Size]byte) {
	m := hmac.New(sha256.New, k.secret)
	m.Write(binary.AppendUvarint(nil, uint64(len(hash))))
	m.Write(hash)
	m.Write(password)
	m.Sum(d[:0])
	return d
}

func (k *known) has(hash, password []byte) bool {
	if len(password) > longest {
		return false
	}
	d := k.digest(hash, password)
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, ok := k.all[d]
	return ok
}

// add remembers one, in the place of any other if there are too many.
func (k *known) add(hash, password []byte) {
	if len(password) > longest {
		return
	}
	d := k.digest(hash, password)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[[sha256.Size]byte]struct{}{}
	}
	for other := range k.all {
		if len(k.all) < mostKnown {
			break
		}
		delete(k.all, other)
	}
	k.all[d] = struct{}{}
}
