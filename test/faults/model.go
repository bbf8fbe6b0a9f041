package faults

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// keyCount keys, each in a directory of its own, are what the clients work on.
const keyCount = 6

func keyName(k int) string { return fmt.Sprintf("/faults/%c/key", 'a'+k) }

// opKind is what an operation does.
type opKind int

const (
	opGet    opKind = iota // one key
	opGetAll               // all keys, by one Range over all partitions
	opPut                  // one key
	opSwap                 // one key, if it is as the client last saw it
	opMulti                // several keys at once, without a condition
	opMove                 // deletes one key and writes another, if both are as last seen
)

// request is one operation, as asked for.
type request struct {
	kind opKind
	id   int64         // of a write: unique, and its value
	keys []int         // which keys
	mods map[int]int64 // what the client believes that their mod revisions are
}

// version is what a key holds: the id of the write and its revision; zero if nothing.
type version struct{ id, mod int64 }

// answer is what came back. For a write without an answer that is known from the
// history to have happened, only rev is set.
type answer struct {
	rev     int64 // of the header; of a write that happened: its own
	failed  bool  // a conditional write whose condition didn't hold
	unknown bool  // no answer came: rev and failed are what the history tells
	read    map[int]version
}

// state is the model's state: all keys, and the highest revision that was
// shown.
type state struct {
	rev  int64
	keys [keyCount]version
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		return s.(state).step(in.(request), out.(answer))
	},
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%v → %+v", in.(request), out.(answer))
	},
}

func (r request) String() string {
	name := [...]string{"get", "get all", "put", "swap", "multi", "move"}[r.kind]
	return fmt.Sprintf("%s %v as %d if %v", name, r.keys, r.id, r.mods)
}

// step tells whether an answer is right in a state, and the state behind it.
func (s state) step(in request, out answer) (bool, state) {
	if in.kind == opGet || in.kind == opGetAll || out.failed {
		return s.read(in, out)
	}
	// A write has a revision above everything that was shown before it.
	if out.rev <= s.rev {
		return false, s
	}
	if !in.holds(s) {
		return false, s
	}
	s.rev = out.rev
	for i, k := range in.keys {
		if in.kind == opMove && i == 0 {
			s.keys[k] = version{}
			continue
		}
		s.keys[k] = version{id: in.id, mod: out.rev}
	}
	return true, s
}

// read checks an operation that only reads: its content is the state at its
// header's revision, and that never goes back.
func (s state) read(in request, out answer) (bool, state) {
	if out.rev < s.rev {
		return false, s
	}
	if out.failed && in.holds(s) {
		return false, s
	}
	for k, v := range out.read {
		if s.keys[k] != v {
			return false, s
		}
	}
	s.rev = out.rev
	return true, s
}

// holds tells whether the condition of a write is true.
func (r request) holds(s state) bool {
	if r.kind != opSwap && r.kind != opMove {
		return true
	}
	for _, k := range r.keys {
		if s.keys[k].mod != r.mods[k] {
			return false
		}
	}
	return true
}
