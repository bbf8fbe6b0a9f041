package keepalive

// maxRequests is the number of requests without an answer that a stream takes.
const maxRequests = 1024

// Stream is a local client's stream.
type Stream struct {
	hub      *Hub
	by       any    // the program
	wake     func() // there may be something for Next
	requests []*request
	closed   bool
	failed   error
}

// Open begins a stream of a program, which has its turn among others. wake is called whenever Next may have something.
func (h *Hub) Open(by any, wake func()) *Stream {
	st := &Stream{hub: h, by: by, wake: wake}
	h.streams[st] = struct{}{}
	return st
}

// Close ends a stream: nothing is renewed for it any more.
func (st *Stream) Close() {
	st.closed, st.requests = true, nil
	delete(st.hub.streams, st)
}

func (st *Stream) over() bool { return st.closed || st.failed != nil }

func (st *Stream) ring() {
	if !st.closed {
		st.wake()
	}
}

// Fail has Next return an error.
func (st *Stream) Fail(err error) {
	if st.failed == nil {
		st.failed = err
	}
	st.ring()
}

// Full reports whether the client has to read before it may ask for more.
func (st *Stream) Full() bool { return len(st.requests) >= maxRequests }

// Idle reports whether all requests were answered, and the answers taken.
func (st *Stream) Idle() bool { return len(st.requests) == 0 }

// Ask has a lease renewed.
func (st *Stream) Ask(id int64) {
	if st.over() {
		return
	}
	r := &request{stream: st}
	st.requests = append(st.requests, r)
	l := st.hub.leases[id]
	switch {
	case l == nil:
		l = &lease{id: id, asked: []*request{r}}
		st.hub.leases[id] = l
		st.hub.enqueue(l, st)
	case l.sent:
		l.later = append(l.later, r)
	default:
		l.asked = append(l.asked, r)
		st.hub.enqueue(l, st) // its turn may come before that of another one that has asked
	}
}

// Next is the next answer for the client, nil for none. An error ends the stream, behind the answers
// that came before.
func (st *Stream) Next() (answer []byte, err error) {
	if len(st.requests) > 0 && st.requests[0].answer != nil {
		answer = st.requests[0].answer
		if st.requests = st.requests[1:]; len(st.requests) == 0 {
			st.requests = nil
		}
		return answer, nil
	}
	return nil, st.failed
}
