package password

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

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
	f.Fuzz(func(t *testing.T, hash, password []byte) {
		if cost, err := bcrypt.Cost(hash); err == nil && cost > 6 {
			return // takes too long
		}
		require.Equal(t, bcrypt.CompareHashAndPassword(hash, password) == nil, Matches(hash, password), "%q %q", hash, password)
	})
}

// On a single core, another goroutine gets its turn after each step, not only when the scheduler
// interrupts a comparison.
func TestOthersRunMeanwhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	hash, err := bcrypt.GenerateFromPassword([]byte("x"), 10)
	require.NoError(t, err)
	done := make(chan bool)
	go func() { done <- Matches(hash, []byte("x")) }()
	for turns := 0; ; turns++ {
		select {
		case ok := <-done:
			require.True(t, ok)
			require.Greater(t, turns, 500)
			return
		default:
			runtime.Gosched()
		}
	}
}
