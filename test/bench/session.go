package main

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
)

const sessionPath = "/stoa.v1.Sessions/Open"

// sessionPipe carries sessions of stoa's on one connection, a stream each. Requests
// were encoded beforehand but for their numbers; of replies it reads as much as tells
// that they are right: the number, which must be the next, the code, the size.
type sessionPipe struct {
	link    *link
	list    []*session
	by      map[uint32]int   // stream → session
	source  func(int) []byte // the next request of a session, without its number
	atLeast int              // bytes in the body of a reply
	echo    bool             // the server is the empty one, which ignores numbers
	buf     []byte
	events  int64 // that watches have brought
}

type session struct {
	stream *stream
	id     int64
	opened *stoapb.Opened
	seq    uint64 // last that was sent
	seen   uint64 // last that was answered
}

// sessionOpening says how to open a pipe.
type sessionOpening struct {
	address  string
	sessions int
	source   func(session int) []byte
	atLeast  int
	ttl      time.Duration
	echo     bool
	replies  int // size of the empty server's replies
	places   bool
}

func openSessions(o sessionOpening) (*sessionPipe, error) {
	l, err := openLink(o.address)
	if err != nil {
		return nil, err
	}
	p := &sessionPipe{link: l, by: map[uint32]int{}, source: o.source, atLeast: o.atLeast, echo: o.echo}
	if err := p.open(o); err != nil {
		l.close()
		return nil, fmt.Errorf("opening %d sessions on %s: %w", o.sessions, o.address, err)
	}
	return p, nil
}

// open opens all sessions at once and waits for all.
func (p *sessionPipe) open(o sessionOpening) error {
	hello := &stoapb.OpenSession{Ttl: int64(max(o.ttl, time.Minute).Seconds()), PartitionMap: o.places}
	if o.echo {
		hello.Revision = int64(o.replies) // it has no better use for it
	}
	b, err := (&sessionwire.ClientBatch{Open: hello}).AppendTo(make([]byte, prefix))
	if err != nil {
		return err
	}
	seal(b)
	for i := range o.sessions {
		s, err := p.link.open(sessionPath)
		if err != nil {
			return err
		}
		p.by[s.id] = i
		p.list = append(p.list, &session{stream: s})
		if err := p.link.send(s, b); err != nil {
			return err
		}
	}
	for opened := 0; opened < o.sessions; {
		if err := p.flushIdle(); err != nil {
			return err
		}
		err := p.messages(func(i int, message []byte) error {
			var b sessionwire.ServerBatch
			if err := b.Decode(message); err != nil {
				return err
			}
			if b.Opened == nil || len(b.Replies) > 0 {
				return errors.New("the first message doesn't say that the session is open")
			}
			p.list[i].opened, p.list[i].id = b.Opened, b.Opened.Session
			opened++
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *sessionPipe) sessions() int                       { return len(p.list) }
func (p *sessionPipe) flush() error                        { return p.link.flush() }
func (p *sessionPipe) pending() bool                       { return p.link.pending() }
func (p *sessionPipe) await(until time.Time) (bool, error) { return p.link.await(until) }

func (p *sessionPipe) flushIdle() error {
	if p.pending() {
		return nil
	}
	return p.flush()
}

// messages receives once, and hands over what messages are whole.
func (p *sessionPipe) messages(message func(session int, b []byte) error) error {
	s, err := p.link.receive()
	if err != nil || s == nil {
		return err
	}
	i := p.by[s.id]
	if err := s.take(func(b []byte) error { return message(i, b) }); err != nil {
		return err
	}
	return s.ended
}

// ask makes one message of all requests.
func (p *sessionPipe) ask(i, n int) error {
	s := p.list[i]
	b := p.begin(s)
	for range n {
		b = s.number(b, p.source(i))
	}
	p.buf = b
	return p.link.send(s.stream, seal(b))
}

// begin begins a message.
func (p *sessionPipe) begin(s *session) []byte {
	b := append(p.buf[:0], 0, 0, 0, 0, 0)
	if s.seen > 0 {
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, s.seen)
	}
	return b
}

// number appends a request with the next number.
func (s *session) number(b, request []byte) []byte {
	s.seq++
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(1+protowire.SizeVarint(s.seq)+len(request)))
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, s.seq)
	return append(b, request...)
}

// single sends one request by itself.
func (p *sessionPipe) single(i int, request []byte) error {
	s := p.list[i]
	p.buf = s.number(p.begin(s), request)
	return p.link.send(s.stream, seal(p.buf))
}

func (p *sessionPipe) receive(answered func(session, n int)) error {
	return p.messages(func(i int, message []byte) error {
		n, err := p.replies(p.list[i], message)
		if n > 0 {
			answered(i, n)
		}
		return err
	})
}

// replies checks the replies of a message and counts them.
func (p *sessionPipe) replies(s *session, b []byte) (n int, err error) {
	for len(b) > 0 {
		tag, size := b[0], 0
		if tag != 2<<3|byte(protowire.BytesType) {
			if size = protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), b[1:]); size < 0 {
				return n, protowire.ParseError(size)
			}
			b = b[1+size:]
			continue
		}
		reply, size := protowire.ConsumeBytes(b[1:])
		if size < 0 {
			return n, protowire.ParseError(size)
		}
		b = b[1+size:]
		isReply, err := p.reply(s, reply)
		if err != nil {
			return n, err
		}
		if isReply {
			n++
		}
	}
	return n, nil
}

// reply looks at one reply; false if it is the event of a watch.
func (p *sessionPipe) reply(s *session, b []byte) (bool, error) {
	var seq, code uint64
	var event bool
	body, note := 0, ""
	for len(b) > 0 {
		tag := b[0]
		b = b[1:]
		var v uint64
		var bytes []byte
		n := 0
		switch protowire.Type(tag & 7) {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			return false, fmt.Errorf("a reply with field %d of type %d", tag>>3, tag&7)
		}
		if n < 0 {
			return false, protowire.ParseError(n)
		}
		b = b[n:]
		switch tag >> 3 {
		case 1:
			seq = v
		case 2:
			event = v != 0
		case 3:
			code = v
		case 4:
			note = string(bytes)
		case 5:
			body = len(bytes)
		}
	}
	switch {
	case code != 0:
		return false, fmt.Errorf("request %d was answered with code %d: %s", seq, code, note)
	case event:
		p.events++
		return false, nil
	case p.echo:
		s.seen++
		return true, nil
	case seq != s.seen+1:
		return false, fmt.Errorf("request %d was answered behind %d", seq, s.seen)
	}
	s.seen = seq
	if body < p.atLeast {
		return false, fmt.Errorf("an answer of %d bytes, where the value alone has %d", body, p.atLeast)
	}
	return true, nil
}

// close closes the sessions, whose leases are revoked, and the connection.
func (p *sessionPipe) close() error {
	defer p.link.close()
	if p.echo {
		return nil
	}
	p.atLeast = 0
	for i := range p.list {
		if err := p.single(i, stoaRequest(stoapb.Kind_CLOSE, stoapb.Level_STRICT, nil)); err != nil {
			return fmt.Errorf("closing sessions: %w", err)
		}
	}
	for closed := 0; closed < len(p.list); {
		if err := p.flushIdle(); err != nil {
			return fmt.Errorf("closing sessions: %w", err)
		}
		err := p.receive(func(_, n int) { closed += n })
		if err != nil && !errors.Is(err, errEnded) {
			return fmt.Errorf("closing sessions: %w", err)
		}
	}
	return nil
}

// stoaRequest is a request of a session without its number.
func stoaRequest(kind stoapb.Kind, level stoapb.Level, body []byte) []byte {
	b := protowire.AppendTag(nil, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(kind))
	if level != 0 {
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(level))
	}
	if len(body) > 0 {
		b = protowire.AppendTag(b, 5, protowire.BytesType)
		b = protowire.AppendBytes(b, body)
	}
	return b
}
