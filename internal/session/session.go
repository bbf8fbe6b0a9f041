package session

import "github.com/stoa-kv/stoa/internal/placement"

// Op is one request of a session.
type Op struct {
	Seq   uint64
	Token int64 // it and all later reads reflect this revision
	Bytes int   // kept in memory
	// Request is the host's.
	Request any

	// Done: there is a reply. The host sets it, through [Session.Wrote] or in
	// Host.Read and Host.Act, or before it hands the request over.
	Done bool
	// Revision is that of the reply, Unseen says that the session doesn't count it
	// as seen, Reflects that the reply shows a state: events of it come first.
	Revision         int64
	Unseen, Reflects bool
	// Logged says that the reply is from the log: that of a write, or of an extension.
	Logged bool
	// Opens: a watch that begins when the reply leaves, behind a revision that
	// the host knows no earlier. No later request is issued before that.
	Opens bool
	// Err is the error of the request.
	Err error

	sent  bool // as a write
	moved bool // it had no effect because its keys have moved
	back  bool // that has happened before
}

// Moved reports that the request has come back, without an effect, from where it was sent.
func (op *Op) Moved() bool { return op.back }

// Class is the way in which a request is carried out.
type Class uint8

// The classes.
const (
	Write Class = iota // goes through the log
	Read               // answered from a state, together with neighbouring reads
	Act                // carried out at once, when all before it has been replied to
	None               // the host has done it, or refused it, while planning
)

// Plan is the way in which a request is carried out, by the server's present
// state.
type Plan struct {
	Class  Class
	Parts  placement.Set
	Alone  bool // a write that must not be in flight with others
	Strict bool // a read that sees all that was acknowledged to any client
}

// Host is the server, seen by a session. Its methods are called by Advance, and
// don't block.
type Host interface {
	Plan(op *Op) Plan
	// Admit is asked before a write. If it returns false, the write is planned anew, and
	// Advance is called again when it may be admitted.
	Admit(op *Op) bool
	// Write submits a write through the log of home, one of the parts, after
	// all earlier ones there. pred is the number of the write before it, if
	// that hasn't been answered. Session.Wrote reports its outcome later.
	Write(op *Op, parts placement.Set, home int, pred uint64)
	// Await waits until parts can be read at revision, and strictly if so asked. It
	// returns true if they can be now, or the reads have to be planned anew; else
	// Session.Reached is called later.
	Await(strict bool, parts placement.Set, revision int64) bool
	// Begin opens a run of reads of parts, which then all see one state.
	Begin(parts placement.Set)
	// Read carries out a read. It returns false if its keys may have moved: then it
	// is planned anew.
	Read(op *Op) bool
	// Act carries out requests of other classes.
	Act(op *Op)
	// Ready reports whether a reply may be sent: if it Reflects a state, when
	// all ordered events up to its revision have been handed over. If not,
	// Advance is called again when it may.
	Ready(op *Op) bool
	// Reply hands over a reply. It opens the watch that the request Opens, and sets its
	// Revision.
	Reply(op *Op)
	// Full reports that the replies handed over have to be sent before further
	// ones.
	Full() bool
}

// Session is the order of one session, on one stream.
type Session struct {
	host Host
	seen int64
	lost bool

	// queue[head:] has not been replied to, in order of numbers; of it,
	// queue[:issued] is in flight or done.
	queue        []*Op
	head, issued int
	next         uint64
	bytes        int

	writes writes
	reads  run
}

// writes are those in flight.
type writes struct {
	count int
	home  int    // the partition that all of them pass through
	away  int    // how many, up to the last, have keys elsewhere only
	last  uint64 // the number of the last of them
	alone bool   // nothing may follow
	anew  bool   // one of them has to be planned anew
	held  bool   // the next one has not been admitted
}

// run is reads that were issued together and have not been carried out.
type run struct {
	ops     []*Op
	parts   placement.Set
	strict  bool
	waiting bool // for Reached
	ready   bool // to be carried out
}

// New returns a session whose first request has number next and whose client has
// seen a revision.
func New(h Host, next uint64, seen int64) *Session {
	return &Session{host: h, next: max(next, 1), seen: seen}
}

// Next is the number that the next request must have.
func (s *Session) Next() uint64 { return s.next }

// Seen is the highest revision that the session has seen.
func (s *Session) Seen() int64 { return s.seen }

// Saw records a revision that the session has seen by an event.
func (s *Session) Saw(revision int64) { s.seen = max(s.seen, revision) }

// Waiting is the number of unanswered requests, and the memory that they keep.
func (s *Session) Waiting() (requests, bytes int) { return len(s.queue) - s.head, s.bytes }

// Lost ends the session: requests in flight may or may not take effect.
func (s *Session) Lost() { s.lost = true }

// Ended reports that the session is lost.
func (s *Session) Ended() bool { return s.lost }

// Take takes the next request. It may be done already: refused for its form, or
// answered from this server's present state. Call Advance after it.
func (s *Session) Take(op *Op) {
	if s.head > 0 && len(s.queue) == cap(s.queue) {
		n := copy(s.queue, s.queue[s.head:])
		clear(s.queue[n:])
		s.queue, s.issued, s.head = s.queue[:n], s.issued-s.head, 0
	}
	s.queue = append(s.queue, op)
	s.next = op.Seq + 1
	s.bytes += op.Bytes
}

// Advance does everything that is possible now. It returns true if the host is
// full: there is more to do once its replies have been sent.
func (s *Session) Advance() (more bool) {
	for !s.lost {
		s.issue()
		moved := s.read()
		opened := s.reply()
		switch {
		case s.host.Full():
			return true
		case !moved && !opened && !s.actable():
			return false
		}
	}
	return false
}

// issue issues the requests that may be in flight now.
func (s *Session) issue() {
	s.writes.held = false
	for s.issued < len(s.queue) && !s.writes.anew && !s.opening() {
		op := s.queue[s.issued]
		if !op.Done && !s.send(op) {
			return
		}
		s.issued++
		s.seen = max(s.seen, op.Token)
	}
}

// opening reports whether a watch is about to be opened.
func (s *Session) opening() bool { return s.issued > s.head && s.queue[s.issued-1].Opens }

func (s *Session) send(op *Op) bool {
	plan := s.host.Plan(op)
	switch plan.Class {
	case Write:
		return s.write(op, plan)
	case Read:
		return s.join(op, plan)
	case None:
		op.Done = true
		return true
	default:
		if s.writes.count > 0 || op != s.queue[s.head] {
			return false
		}
		s.host.Act(op)
		op.Done = true
		s.note(op)
		return true
	}
}

// actable reports whether the next request was only waiting for the replies to
// those before it.
func (s *Session) actable() bool {
	return s.issued == s.head && s.issued < len(s.queue) && s.writes.count == 0 && !s.writes.held && len(s.reads.ops) == 0 && !s.queue[s.issued].Done
}

// reply hands over the replies that may be sent. It returns whether a watch has
// been opened: then the requests after it may be issued.
func (s *Session) reply() (opened bool) {
	for s.head < s.issued && s.queue[s.head].Done && !s.host.Full() {
		op := s.queue[s.head]
		if !s.host.Ready(op) {
			return opened
		}
		s.queue[s.head] = nil
		s.head++
		s.bytes -= op.Bytes
		s.host.Reply(op)
		if op.Opens {
			s.note(op)
			opened = true
		}
	}
	if s.head == len(s.queue) {
		s.queue, s.head, s.issued = s.queue[:0], 0, 0
	}
	return opened
}

func (s *Session) note(op *Op) {
	if !op.Unseen {
		s.seen = max(s.seen, op.Revision)
	}
}
