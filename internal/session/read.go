package session

// join makes a read part of the next run. Writes before it have been answered
// then, and those after it wait until it has been carried out. A run in flight
// accepts no more reads: its read point may be older than the read.
func (s *Session) join(op *Op, plan Plan) bool {
	r := &s.reads
	if s.writes.count > 0 || r.waiting || r.ready {
		return false
	}
	r.ops = append(r.ops, op)
	r.parts |= plan.Parts
	r.strict = r.strict || plan.Strict
	return true
}

// read issues the run, and carries it out once its read point is reached. It
// returns whether it made progress.
func (s *Session) read() bool {
	r := &s.reads
	if len(r.ops) == 0 || r.waiting {
		return false
	}
	if !r.ready {
		if !s.host.Await(r.strict, r.parts, s.seen) {
			r.waiting = true
			return false
		}
		s.begin()
	}
	for i, op := range r.ops {
		switch {
		case s.host.Full():
			r.ops = append(r.ops[:0], r.ops[i:]...)
			return true
		case !s.host.Read(op):
			s.readAnew(op)
			return true
		}
		op.Done = true
		s.note(op)
	}
	s.endRun()
	return true
}

func (s *Session) begin() {
	s.reads.ready = true
	s.host.Begin(s.reads.parts)
}

// readAnew issues the run again, from a given read on.
func (s *Session) readAnew(from *Op) {
	for s.issued > s.head && s.queue[s.issued-1] != from {
		s.issued--
	}
	s.issued--
	s.endRun()
}

// Reached reports that the run for which Await was called can be carried out,
// or the reason why it can't. Call Advance after it.
func (s *Session) Reached(err error) {
	s.reads.waiting = false
	if err == nil {
		s.begin()
		return
	}
	for _, op := range s.reads.ops {
		op.Done, op.Err = true, err
	}
	s.endRun()
}

func (s *Session) endRun() {
	clear(s.reads.ops)
	s.reads = run{ops: s.reads.ops[:0]}
}
