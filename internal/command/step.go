package command

import (
	"encoding/binary"
	"fmt"
)

// Step moves the keys between two cursors from one placement to another. It
// does nothing if the cursor isn't at From: then the step has already been
// made.
type Step struct {
	From, To []byte
	Last     bool // with all keys from From on; there is no To
}

// The encoded step: last (1 byte, 0 or 1) | length of from | from | to.

// AppendTo appends the encoded step to b.
func (s *Step) AppendTo(b []byte) []byte {
	last := byte(0)
	if s.Last {
		last = 1
	}
	b = append(b, last)
	b = binary.AppendUvarint(b, uint64(len(s.From)))
	b = append(b, s.From...)
	return append(b, s.To...)
}

// DecodeStep reads the body of a Move command. The cursors alias b.
func DecodeStep(b []byte) (Step, error) {
	r := reader{rest: b}
	var s Step
	if last := r.bytes(1); r.err == nil {
		s.Last = last[0] == 1
	}
	s.From = r.bytes(r.uvarint())
	if r.err != nil {
		return Step{}, fmt.Errorf("decode step of %d bytes: %w", len(b), r.err)
	}
	s.To = r.rest
	return s, nil
}
