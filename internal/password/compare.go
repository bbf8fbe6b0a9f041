package password

import (
	"crypto/subtle"
	"encoding/base64"
	"runtime"

	"golang.org/x/crypto/bcrypt"
	//lint:ignore SA1019 bcrypt is made of it
	"golang.org/x/crypto/blowfish"
)

// Lengths of the parts of a hash, $2a$10$SALTHASH, behind its version and its cost.
const (
	saltLength = 22
	hashLength = 31
)

// bytesOf is bcrypt's own kind of base64.
var bytesOf = base64.NewEncoding("./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789").WithPadding(base64.NoPadding)

// Matches tells whether it is the hash of the password. It takes time, about 0.1 ms << cost >> 10
// for each of 1,024 steps, and yields between them.
func Matches(hash, password []byte) bool {
	cost, err := bcrypt.Cost(hash)
	if err != nil {
		return false
	}
	rest := hash[3:] // $2$
	if hash[2] != '$' {
		rest = hash[4:] // $2a$
	}
	rest = rest[3:] // 10$
	if len(rest) < saltLength+hashLength {
		return false
	}
	salt, err := bytesOf.DecodeString(string(rest[:saltLength]))
	if err != nil {
		return false
	}
	sum, err := compute(password, salt, cost)
	return err == nil && subtle.ConstantTimeCompare([]byte(bytesOf.EncodeToString(sum)), rest[saltLength:saltLength+hashLength]) == 1
}

// compute is bcrypt's function: the text encrypted many times, without its last byte.
func compute(password, salt []byte, cost int) ([]byte, error) {
	key := append(password[:len(password):len(password)], 0) // as C's strings end
	c, err := blowfish.NewSaltedCipher(key, salt)
	if err != nil {
		return nil, err
	}
	for range uint64(1) << cost {
		blowfish.ExpandKey(key, c)
		blowfish.ExpandKey(salt, c)
		runtime.Gosched()
	}
	text := []byte("OrpheanBeholderScryDoubt")
	for i := 0; i < len(text); i += blowfish.BlockSize {
		for range 64 {
			c.Encrypt(text[i:i+blowfish.BlockSize], text[i:i+blowfish.BlockSize])
		}
	}
	return text[:len(text)-1], nil
}
