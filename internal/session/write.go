package session

// Outcome is what became of a write.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota // there is a reply, be it an error
	Moved                   // it had no effect: its keys are elsewhere
	Gap                     // it had no effect: the one before it had none
	Unknown                 // it may or may not have taken effect
)

// write sends a write on its way if those that are under way go to the same
// partition. Its predecessor is then its condition, so that a hole stays a hole
// whatever happens to the messages.
func (s *Session) write(op *Op, plan Plan) bool {
	w := &s.writes
	if len(s.reads.ops) > 0 {
		return false
	}
	pred := uint64(0)
	if w.count > 0 {
		if plan.Parts.Len() != 1 || plan.Alone || plan.Parts != w.parts {
			return false
		}
		pred = w.last
	}
	w.count, w.parts, w.last = w.count+1, plan.Parts, op.Seq
	if plan.Alone {
		w.parts = 0 // like no other
	}
	op.sent = true
	s.host.Write(op, plan.Parts, pred)
	return true
}

// Wrote says what became of a write. Call Advance after it.
func (s *Session) Wrote(op *Op, what Outcome) {
	s.writes.count--
	switch what {
	case Answered:
		op.Done = true
		s.note(op)
	case Moved:
		op.moved, s.writes.anew = true, true
	case Gap:
		s.writes.anew = true
	default:
		s.lost = true
	}
	if s.writes.count == 0 && s.writes.anew {
		s.goBack()
	}
}

// goBack makes the writes that had no effect go on their way anew. They are those
// that went last, and the first of them says why. If it is otherwise, the order is
// broken, or the one before the first was lost without a word.
func (s *Session) goBack() {
	s.writes.anew = false
	first := -1
	for i := s.head; i < s.issued; i++ {
		op := s.queue[i]
		switch {
		case first < 0 && !op.Done:
			first = i
			s.lost = s.lost || !op.moved
		case first >= 0 && op.Done && op.sent:
			s.lost = true
		}
		op.moved = false
	}
	if first >= 0 {
		s.issued = first
	}
}
