package token

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVerifiedTokensAreBounded(t *testing.T) {
	var v verified
	v.add(strings.Repeat("x", maxVerifiedBytes+1), Claims{User: "long"})
	for i := range 3*maxVerified + 7 {
		text := fmt.Sprint("token", i)
		v.add(text, Claims{User: text, Expires: noon})
		v.add(text, Claims{User: text, Expires: noon}) // as another request of the client does
	}
	kept := 0
	for range v.claims.Range {
		kept++
	}
	require.LessOrEqual(t, kept, maxVerified)
	require.Positive(t, kept)
	last := fmt.Sprint("token", 3*maxVerified+6)
	c, ok := v.find(last, noon.Add(-time.Nanosecond))
	require.True(t, ok)
	require.Equal(t, last, c.User)
	_, ok = v.find(last, noon)
	require.False(t, ok, "it has expired")
}

// BenchmarkVerify measures what a request with a JSON Web Token pays for it.
func BenchmarkVerify(b *testing.B) {
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(b, err)
	private, _ := keys(b, own)
	k, err := Parse("jwt,sign-method=RS256,priv-key="+private, 0)
	require.NoError(b, err)
	text, err := k.JWT.Sign("someone", 12, noon)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.JWT.Verify(text, noon); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFind is BenchmarkVerify for a simple token, of a user whose requests are on all
// cores.
func BenchmarkFind(b *testing.B) {
	s := NewSimple(5 * time.Minute)
	began := time.Now()
	s.Assign("abcdefghijklmnop.123", 7, 0)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, ok := s.Find("abcdefghijklmnop.123", int64(time.Since(began))); !ok {
				b.Error("the token is unknown")
			}
		}
	})
}
