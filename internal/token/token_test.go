package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func TestSimpleTokensEndWhenTheyAreNotUsed(t *testing.T) {
	s := NewSimple(time.Minute)
	s.Assign("used.1", 7, 0)
	s.Assign("idle.2", 8, 0)
	for i := range 5 {
		at := int64(time.Duration(i) * 40 * time.Second)
		c, ok := s.Find("used.1", at)
		require.True(t, ok)
		require.EqualValues(t, 7, c)
	}
	// An end that was set later than necessary is not set again, and holds for the full time.
	s.Assign("often.4", 10, 0)
	for _, at := range []time.Duration{0, 500 * time.Millisecond, 60*time.Second + 400*time.Millisecond} {
		_, ok := s.Find("often.4", int64(at))
		require.True(t, ok, at)
	}
	_, ok := s.Find("often.4", int64(122*time.Second))
	require.False(t, ok)
	later := int64(200 * time.Second)
	_, ok = s.Find("idle.2", later)
	require.False(t, ok)
	s.Assign("new.3", 9, later)
	_, kept := s.tokens.Load("idle.2")
	require.False(t, kept, "those that have ended are removed")
	s.Clear()
	_, ok = s.Find("new.3", later)
	require.False(t, ok)
}

func TestTokensNameTheirIndex(t *testing.T) {
	prefix, err := Prefix()
	require.NoError(t, err)
	require.Len(t, prefix, 16)
	i, ok := Index(Text(prefix, 42))
	require.True(t, ok)
	require.EqualValues(t, 42, i)
	for _, bad := range []string{"", "x", "x.", "x.y", "x.-1", "x.1.2", "x.99999999999999999999"} {
		_, ok := Index(bad)
		require.False(t, ok, bad)
	}
}

// keys writes a pair of keys to files.
func keys(t testing.TB, own crypto.Signer) (private, public string) {
	t.Helper()
	dir := t.TempDir()
	b, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(t, err)
	p, err := x509.MarshalPKIXPublicKey(own.Public())
	require.NoError(t, err)
	private, public = filepath.Join(dir, "private"), filepath.Join(dir, "public")
	require.NoError(t, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600))
	require.NoError(t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: p}), 0o600))
	return private, public
}

func TestEveryMethodSignsAndVerifies(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for method, own := range map[string]crypto.Signer{"RS256": r, "RS512": r, "PS256": r, "ES256": e, "EdDSA": ed} {
		private, public := keys(t, own)
		both, err := Parse("jwt,sign-method="+method+",priv-key="+private+",pub-key="+public+",ttl=1m", 0)
		require.NoError(t, err, method)
		text, err := both.JWT.Sign("a", 12, noon)
		require.NoError(t, err)
		verify, err := Parse("jwt,sign-method="+method+",pub-key="+public, 0)
		require.NoError(t, err)
		for _, j := range []*JWT{both.JWT, verify.JWT} {
			got, err := j.Verify(text, noon.Add(59*time.Second))
			require.NoError(t, err, method)
			require.Equal(t, "a", got.User)
			require.EqualValues(t, 12, got.Revision)
			require.WithinDuration(t, noon.Add(time.Minute), got.Expires, time.Second)
			_, err = j.Verify(text, noon.Add(61*time.Second))
			require.ErrorIs(t, err, jwt.ErrTokenExpired)
			_, err = j.Verify(text[:len(text)-6]+strings.Repeat("A", 6), noon)
			require.Error(t, err, "another signature")
		}
		_, err = verify.JWT.Sign("a", 12, noon)
		require.ErrorIs(t, err, ErrVerifyOnly)
	}
}

// A token that is signed with the public key as an HMAC secret, or not at all, is refused.
func TestTheMethodIsFixed(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, public := keys(t, r)
	k, err := Parse("jwt,sign-method=RS256,pub-key="+public, 0)
	require.NoError(t, err)
	secret, err := os.ReadFile(public)
	require.NoError(t, err)
	claims := jwt.MapClaims{"username": "root", "revision": 1, "exp": noon.Add(time.Hour).Unix()}
	for method, key := range map[jwt.SigningMethod]any{jwt.SigningMethodHS256: secret, jwt.SigningMethodNone: jwt.UnsafeAllowNoneSignatureType} {
		text, err := jwt.NewWithClaims(method, claims).SignedString(key)
		require.NoError(t, err)
		_, err = k.JWT.Verify(text, noon)
		require.ErrorIs(t, err, jwt.ErrTokenSignatureInvalid, method.Alg())
	}
}

func TestClaimsAreNeeded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("secret"), 0o600))
	k, err := Parse("jwt,sign-method=HS256,priv-key="+path, 0)
	require.NoError(t, err)
	for _, c := range []jwt.MapClaims{{}, {"username": "a"}, {"revision": 1}, {"username": 1, "revision": 1}, {"username": "a", "revision": -1}, {"username": "a", "revision": "1"}} {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte("secret"))
		require.NoError(t, err)
		_, err = k.JWT.Verify(text, noon)
		require.Error(t, err, "%v", c)
	}
}

func TestOptions(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	private, public := keys(t, r)
	_, strange := keys(t, other)
	k, err := Parse("simple", 0)
	require.NoError(t, err)
	require.EqualValues(t, 5*time.Minute, k.Simple.ttl)
	for text, want := range map[string]error{
		"":                      errOptions,
		"magic":                 errOptions,
		"jwt":                   errMethod,
		"jwt,sign-method=none":  nil,
		"jwt,sign-method=RS256": errMissingKey,
		"jwt,sign-method=HS256": errMissingKey,
		"jwt,sign-method":       errOptions,
		"jwt,a=1,a=2":           errOptions,
		"jwt,sign-method=RS256,ttl=soon,priv-key=" + private:                errOptions,
		"jwt,sign-method=RS256,priv-key=/none":                              errOptions,
		"jwt,sign-method=RS256,priv-key=" + private + ",pub-key=" + strange: errKeyMismatch,
		"jwt,sign-method=ES256,priv-key=" + private:                         nil,
		"jwt,sign-method=RS256,priv-key=" + public:                          nil,
	} {
		_, err := Parse(text, 0)
		require.Error(t, err, text)
		if want != nil {
			require.ErrorIs(t, err, want, text)
		}
	}
}

func FuzzVerify(f *testing.F) {
	path := filepath.Join(f.TempDir(), "secret")
	require.NoError(f, os.WriteFile(path, []byte("secret"), 0o600))
	k, err := Parse("jwt,sign-method=HS256,priv-key="+path, 0)
	require.NoError(f, err)
	text, err := k.JWT.Sign("a", 1, noon)
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = Index(text)
		_, _ = k.JWT.Verify(text, noon)
	})
}
