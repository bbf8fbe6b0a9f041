package commands

import (
	"errors"
	"fmt"
)

// Sender puts the commands of one client into batches, one of which is on its way at a time.
//
// Each client of a queue has a key there, on a lease. The transaction of batch n compares the
// version of that key with n, puts the entry and puts the key again. So the version says how
// many batches are in the queue, and a batch whose answer was lost is sent again without harm.
type Sender struct {
	bytes   int
	number  int64 // of the batch on its way, or of the next one; the first is 1
	waiting [][]byte
	flying  int // commands of the batch on its way: the first of those that wait
}

// NewSender makes the sender of a client whose key has just been put. A batch has as many
// commands as there are in so many bytes, and at least one.
func NewSender(bytes int) *Sender { return &Sender{bytes: bytes, number: 1} }

// Add puts a command behind those that wait.
func (s *Sender) Add(c Command) { s.waiting = append(s.waiting, c.append(nil)) }

// Waiting is the number of commands that have no answer.
func (s *Sender) Waiting() int { return len(s.waiting) }

// Flying is the number of commands of the batch on its way: the first of those that wait.
func (s *Sender) Flying() int { return s.flying }

// Batch is the one on its way, or if there is none the next: the same until it is answered.
// It is false if no command waits.
func (s *Sender) Batch() (number int64, value []byte, ok bool) {
	if len(s.waiting) == 0 {
		return 0, nil, false
	}
	if s.flying == 0 {
		size := 1
		for _, c := range s.waiting {
			if size += len(c); s.flying > 0 && size > s.bytes {
				break
			}
			s.flying++
		}
	}
	value = []byte{form}
	for _, c := range s.waiting[:s.flying] {
		value = append(value, c...)
	}
	return s.number, value, true
}

// Answer is that of a batch's transaction.
type Answer struct {
	Taken bool
	// Revision is the transaction's if it was taken; else that of the last change of the client's
	// key, and Version its version: 0 if there is none.
	Revision, Version int64
}

// Errors of a sender. It can't go on.
var (
	// ErrExpired: the client's lease has ended.
	ErrExpired = errors.New("the lease of the queue's client has expired")
	// ErrNumber: the client's key is not what it has made of it.
	ErrNumber = errors.New("another process has used the key of the queue's client")
)

// Answered ends the batch on its way: it has so many commands, and is the entry of the queue
// with that revision. ErrExpired leaves open whether it is in the queue, if it was sent before.
func (s *Sender) Answered(a Answer) (commands int, entry int64, err error) {
	switch {
	case a.Taken, a.Version == s.number+1: // the answer before this one was lost
	case a.Version == 0:
		return 0, 0, ErrExpired
	default:
		return 0, 0, fmt.Errorf("%w: batch %d, version %d", ErrNumber, s.number, a.Version)
	}
	commands = s.flying
	clear(s.waiting[:commands])
	s.waiting = s.waiting[commands:]
	s.flying = 0
	s.number++
	return commands, a.Revision, nil
}
