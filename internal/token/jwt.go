package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// ErrVerifyOnly is the error of signing with a public key alone, in etcd's words.
var ErrVerifyOnly = errors.New("auth: token signing attempted with verify-only key")

// JWT signs and verifies JSON Web Tokens with one key.
type JWT struct {
	method jwt.SigningMethod
	sign   any // nil: tokens are verified only
	verify any
	ttl    time.Duration
	valid  verified
}

// Claims are what a token says.
type Claims struct {
	User string
	// Revision is that of the users and roles when the token was signed.
	Revision uint64
	Expires  time.Time // zero: never
}

// Sign returns a token.
func (j *JWT) Sign(user string, revision uint64, now time.Time) (string, error) {
	if j.sign == nil {
		return "", ErrVerifyOnly
	}
	t := jwt.NewWithClaims(j.method, jwt.MapClaims{"username": user, "revision": revision, "exp": now.Add(j.ttl).Unix()})
	text, err := t.SignedString(j.sign)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return text, nil
}

// Verify returns the claims of a token that was signed with the key and hasn't expired.
func (j *JWT) Verify(text string, now time.Time) (Claims, error) {
	if c, ok := j.valid.find(text, now); ok {
		return c, nil
	}
	c, err := j.read(text, now)
	if err == nil {
		j.valid.add(text, c)
	}
	return c, err
}

// read verifies a token, which takes longer than most requests.
func (j *JWT) read(text string, now time.Time) (Claims, error) {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{j.method.Alg()}), jwt.WithTimeFunc(func() time.Time { return now }))
	claims := jwt.MapClaims{}
	if _, err := parser.ParseWithClaims(text, claims, func(*jwt.Token) (any, error) { return j.verify, nil }); err != nil {
		return Claims{}, err
	}
	user, ok := claims["username"].(string)
	if !ok {
		return Claims{}, errors.New("the token has no username")
	}
	revision, ok := claims["revision"].(float64)
	if !ok || revision < 0 || revision > math.MaxInt64 {
		return Claims{}, errors.New("the token has no revision")
	}
	c := Claims{User: user, Revision: uint64(revision)}
	if at, err := claims.GetExpirationTime(); err == nil && at != nil {
		c.Expires = at.Time
	}
	return c, nil
}

// pair is what the two keys of an option have in common.
type pair interface{ Equal(crypto.PublicKey) bool }

// setKeys takes the keys that the options name.
func (j *JWT) setKeys(private, public []byte) (err error) {
	var own crypto.Signer
	var shown pair
	switch j.method.(type) {
	case *jwt.SigningMethodHMAC:
		if len(private) == 0 {
			return errMissingKey
		}
		j.sign, j.verify = private, private
		return nil
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		own, shown, err = parsed(private, public, jwt.ParseRSAPrivateKeyFromPEM, jwt.ParseRSAPublicKeyFromPEM)
	case *jwt.SigningMethodECDSA:
		own, shown, err = parsed(private, public, jwt.ParseECPrivateKeyFromPEM, jwt.ParseECPublicKeyFromPEM)
	case *jwt.SigningMethodEd25519:
		own, shown, err = parsed(private, public, edPrivate, edPublic)
	default:
		return fmt.Errorf("unsupported signing method: %T", j.method)
	}
	switch {
	case err != nil:
		return err
	case own == nil && shown == nil:
		return errMissingKey
	case own == nil:
		j.verify = shown
	case shown != nil && !shown.Equal(own.Public()):
		return errKeyMismatch
	default:
		j.sign, j.verify = own, own.Public()
	}
	return nil
}

func parsed[Private crypto.Signer, Public pair](private, public []byte, readPrivate func([]byte) (Private, error), readPublic func([]byte) (Public, error)) (own crypto.Signer, shown pair, err error) {
	if len(private) > 0 {
		if own, err = readPrivate(private); err != nil {
			return nil, nil, fmt.Errorf("private key: %w", err)
		}
	}
	if len(public) > 0 {
		if shown, err = readPublic(public); err != nil {
			return nil, nil, fmt.Errorf("public key: %w", err)
		}
	}
	return own, shown, nil
}

func edPrivate(pem []byte) (ed25519.PrivateKey, error) {
	key, err := jwt.ParseEdPrivateKeyFromPEM(pem)
	if err != nil {
		return nil, err
	}
	return key.(ed25519.PrivateKey), nil
}

func edPublic(pem []byte) (ed25519.PublicKey, error) {
	key, err := jwt.ParseEdPublicKeyFromPEM(pem)
	if err != nil {
		return nil, err
	}
	return key.(ed25519.PublicKey), nil
}

var (
	_ pair = (*rsa.PublicKey)(nil)
	_ pair = (*ecdsa.PublicKey)(nil)
)
