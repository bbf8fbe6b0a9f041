package password

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"

	"golang.org/x/crypto/bcrypt"
	//lint:ignore SA1019 bcrypt is made of it
	"golang.org/x/crypto/blowfish"
)

// Lengths of the parts of a hash, $2a$10$SALTHASH, behind its version and its cost.
const (
	saltLength = 22
	hashLength = 31
)

// SaltBytes is the length of a salt.
const SaltBytes = 16

// longest is what bcrypt takes of a password.
const longest = 72

// bytesOf is bcrypt's own kind of base64.
var bytesOf = base64.NewEncoding("./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789").WithPadding(base64.NoPadding)

// matches tells whether it is the hash of the password. It calls step after each of 1 << cost steps
// of about 0.1 ms, and ends with its error.
func matches(hash, password []byte, step func() error) (bool, error) {
	cost, err := bcrypt.Cost(hash)
	if err != nil {
		return false, nil
	}
	rest := hash[3:] // $2$
	if hash[2] != '$' {
		rest = hash[4:] // $2a$
	}
	rest = rest[3:] // 10$
	if len(rest) < saltLength+hashLength {
		return false, nil
	}
	salt, err := bytesOf.DecodeString(string(rest[:saltLength]))
	if err != nil || len(salt) != SaltBytes { // line ends aren't decoded
		return false, nil
	}
	sum, err := compute(password, salt, cost, step)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare([]byte(bytesOf.EncodeToString(sum)), rest[saltLength:saltLength+hashLength]) == 1, nil
}

// generate makes a hash.
func generate(password, salt []byte, cost int, step func() error) ([]byte, error) {
	if len(password) > longest {
		return nil, bcrypt.ErrPasswordTooLong
	}
	sum, err := compute(password, salt, cost, step)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "$2a$%02d$%s%s", cost, bytesOf.EncodeToString(salt), bytesOf.EncodeToString(sum)), nil
}

// compute is bcrypt's function: the text encrypted many times, without its last byte.
func compute(password, salt []byte, cost int, step func() error) ([]byte, error) {
	key := append(password[:len(password):len(password)], 0) // as C's strings end
	c, err := blowfish.NewSaltedCipher(key, salt)
	if err != nil {
		return nil, err
	}
	for range uint64(1) << cost {
		blowfish.ExpandKey(key, c)
		blowfish.ExpandKey(salt, c)
		if err := step(); err != nil {
			return nil, err
		}
	}
	text := []byte("OrpheanBeholderScryDoubt")
	for i := 0; i < len(text); i += blowfish.BlockSize {
		for range 64 {
			c.Encrypt(text[i:i+blowfish.BlockSize], text[i:i+blowfish.BlockSize])
		}
	}
	return text[:len(text)-1], nil
}
