package password

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

func noStep() error { return nil }

// FuzzMatches compares with bcrypt's own answer, for hashes and for what isn't one.
func FuzzMatches(f *testing.F) {
	for _, password := range []string{"", "x", "secret\x00", string(bytes.Repeat([]byte("long"), 18))} {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(f, err)
		f.Add(hash, []byte(password))
		f.Add(hash, []byte(password+"x"))
		f.Add(append(hash, "more"...), []byte(password))
		f.Add(hash[:59], []byte(password))
		f.Add(append([]byte("$2"), hash[3:]...), []byte(password)) // of no minor version
		f.Add(append([]byte("$2y"), hash[3:]...), []byte(password))
		f.Add(append([]byte("$3a"), hash[3:]...), []byte(password))
	}
	f.Add([]byte("$2a$04$======================aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), []byte("x"))
	f.Add([]byte("$2a$99$aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), []byte("x"))
	f.Add([]byte("$0$040"+strings.Repeat("\n", 22)+strings.Repeat("0", 31)), []byte("0"))
	f.Fuzz(func(t *testing.T, hash, password []byte) {
		if cost, err := bcrypt.Cost(hash); err == nil && cost > 6 {
			return // takes too long
		}
		ok, err := matches(hash, password, noStep)
		require.NoError(t, err)
		require.Equal(t, bcrypt.CompareHashAndPassword(hash, password) == nil, ok, "%q %q", hash, password)
	})
}

// bcrypt takes the hashes that are made here, and its cost from them.
func TestGenerate(t *testing.T) {
	for _, password := range []string{"", "x", "secret\x00", string(bytes.Repeat([]byte("long"), 18))} {
		hash, err := generate([]byte(password), []byte("0123456789abcdef"), 5, noStep)
		require.NoError(t, err)
		require.NoError(t, bcrypt.CompareHashAndPassword(hash, []byte(password)))
		require.Error(t, bcrypt.CompareHashAndPassword(hash, []byte("other")))
		cost, err := bcrypt.Cost(hash)
		require.NoError(t, err)
		require.Equal(t, 5, cost)
	}
	_, err := generate(bytes.Repeat([]byte("x"), 73), []byte("0123456789abcdef"), 5, noStep)
	require.ErrorIs(t, err, bcrypt.ErrPasswordTooLong)
}
