package session

import "github.com/stoa-kv/stoa/internal/placement"

// Outcome is the outcome of a write.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota // there is a reply, be it an error
	Moved                   // it had no effect, for its keys have moved, or not all of it yet
	Gap                     // it had no effect: the one before it had none
	Unknown                 // it may or may not have taken effect
)

// write issues a write. Those in flight together have a home, the partition of
// the first: all of them pass through its log, in order, and those with keys of
// other partitions are rendezvous with it. Each has its predecessor as its
// condition, and home remembers whether that has taken effect; so a gap is
// never passed, even if messages are lost.
func (s *Session) write(op *Op, plan Plan) bool {
	w := &s.writes
	switch {
	case len(s.reads.ops) > 0:
		return false
	case w.count == 0:
		w.home, w.last, w.away = plan.Parts.First(), 0, 0
	case plan.Alone || w.alone:
		return false
	case plan.Parts.Has(w.home):
		w.away = 0
	default:
		if w.away++; w.away > maxAway {
			return false
		}
	}
	if w.held = !s.host.Admit(op); w.held {
		return false
	}
	pred := w.last
	w.count, w.last, w.alone = w.count+1, op.Seq, plan.Alone
	op.sent = true
	s.host.Write(op, plan.Parts|placement.Of(w.home), w.home, pred)
	return true
}

// maxAway is the number of consecutive writes without a key in the home, after
// which the session waits for all of them and moves its home: in the long run
// that is cheaper than writing each of them into two logs.
const maxAway = 64

// Wrote reports the outcome of a write. Call Advance after it.
func (s *Session) Wrote(op *Op, what Outcome) {
	s.writes.count--
	switch what {
	case Answered:
		op.Done, op.Logged = true, true
		s.note(op)
	case Moved:
		op.moved, op.back, s.writes.anew = true, true, true
	case Gap:
		s.writes.anew = true
	default:
		s.lost = true
	}
	if s.writes.count == 0 && s.writes.anew {
		s.goBack()
	}
}

// goBack issues the writes that had no effect again. They are the last ones,
// and the outcome of the first is the reason. If it is otherwise, the order is
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
