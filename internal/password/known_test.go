package password

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzKnown has one password remembered for one hash: no other password is taken for it, for no
// hash, wherever the one ends and the other begins.
func FuzzKnown(f *testing.F) {
	f.Add([]byte("hash"), []byte("password"), []byte("hash"), []byte("password"))
	f.Add([]byte("hash"), []byte("password"), []byte("hashp"), []byte("assword"))
	f.Add([]byte(""), []byte("x"), []byte("x"), []byte(""))
	f.Add([]byte("hash"), bytes.Repeat([]byte("x"), longest+1), []byte("hash"), bytes.Repeat([]byte("x"), longest))
	f.Fuzz(func(t *testing.T, hash, password, otherHash, other []byte) {
		k := known{secret: []byte("secret")}
		k.add(hash, password)
		require.Equal(t, len(password) <= longest, k.has(hash, password))
		same := bytes.Equal(hash, otherHash) && bytes.Equal(password, other)
		require.Equal(t, same && len(other) <= longest, k.has(otherHash, other))
	})
}
