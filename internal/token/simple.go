package token

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Simple are the tokens of one server. Each ends when it hasn't been used for a time. The present
// time is in nanoseconds of any clock that all calls share and that never goes back.
type Simple struct {
	ttl    int64
	tokens sync.Map // a text to its *simple: requests only read it

	mu    sync.Mutex // one adds tokens at a time
	swept int64
}

type simple struct {
	credential uint64
	end        atomic.Int64
}

// NewSimple returns a server's tokens: none.
func NewSimple(ttl time.Duration) *Simple { return &Simple{ttl: int64(ttl)} }

const (
	letters      = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	prefixLength = 16
)

// Prefix draws the secret part of a token.
func Prefix() (string, error) {
	b := make([]byte, prefixLength)
	for i := range b {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			return "", fmt.Errorf("drawing a token: %w", err)
		}
		b[i] = letters[n.Int64()]
	}
	return string(b), nil
}

// Text is the token with a secret part, assigned by the log's entry at an index: a server that
// hasn't applied that entry doesn't know the token yet.
func Text(prefix string, index uint64) string { return prefix + "." + strconv.FormatUint(index, 10) }

// Index returns the index in a token.
func Index(token string) (index uint64, ok bool) {
	_, text, ok := strings.Cut(token, ".")
	if !ok {
		return 0, false
	}
	index, err := strconv.ParseUint(text, 10, 64)
	return index, err == nil
}

// Assign makes a token the proof of a credential.
func (s *Simple) Assign(token string, credential uint64, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.swept > s.ttl/4 {
		s.sweep(now)
	}
	t := &simple{credential: credential}
	t.end.Store(now + s.ttl)
	s.tokens.Store(token, t)
}

func (s *Simple) sweep(now int64) {
	s.swept = now
	for text, t := range s.tokens.Range {
		if t.(*simple).end.Load() < now {
			s.tokens.Delete(text)
		}
	}
}

// Find returns the credential of a token, and gives the token its full time again: a little
// more, so that not every request writes to memory that all cores read.
func (s *Simple) Find(token string, now int64) (credential uint64, ok bool) {
	found, ok := s.tokens.Load(token)
	if !ok {
		return 0, false
	}
	t := found.(*simple)
	end := t.end.Load()
	if end < now {
		return 0, false
	}
	if full := now + s.ttl; end < full {
		t.end.Store(full + s.ttl/extra)
	}
	return t.credential, true
}

// extra is the part of its time by which a token's end is set later than necessary.
const extra = 64

// Clear forgets all tokens.
func (s *Simple) Clear() { s.tokens.Clear() }
