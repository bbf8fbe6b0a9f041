package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session"
)

// stressClient opens one session after the other.
type stressClient struct {
	r     *rig
	slow  bool    // in receiving
	ended []int64 // sessions

	*stressSession
}

const stressKeys = 4

func (c *stressClient) live(quiet *atomic.Bool) {
	c.begin()
	for !quiet.Load() {
		c.step()
	}
	c.send(c.closing())
	c.waitForReplies(0)
}

func (c *stressClient) begin() {
	c.stressSession = &stressSession{
		c: c, id: c.r.nextID.Add(1), ttl: int64(1 + rand.IntN(2)), values: map[string]string{}, watches: map[uint64]*stressWatch{},
	}
	c.grant()
	c.open()
	key := fmt.Sprintf("e%d", c.id)
	c.send(c.put(key, "", c.id))
}

func (c *stressClient) step() {
	switch n := rand.IntN(1000); {
	case n < 10: // the stream breaks
		c.handle.Close()
	case n < 12: // the client abandons the session
		c.handle.Close()
		c.ended = append(c.ended, c.id)
		c.begin()
		return
	case n < 15:
		c.send(c.closing())
		c.waitForReplies(0)
		c.begin()
		return
	case n < 40:
		c.waitForReplies(rand.IntN(10))
	case n < 60:
		time.Sleep(rand.N(20 * time.Millisecond))
	case n < 80:
		c.take(nil, c.sink)
	default:
		var some []*stressAsk
		s := c.stressSession
		s.mu.Lock()
		for range 1 + rand.IntN(8) {
			some = append(some, c.draw())
		}
		s.mu.Unlock()
		c.send(some...)
	}
	c.waitForReplies(200)
}

// draw returns a request of a random kind.
func (c *stressClient) draw() *stressAsk {
	key := fmt.Sprintf("s%d-%d", c.id, rand.IntN(stressKeys))
	level := []stoapb.Level{stoapb.Level_STRICT, stoapb.Level_CAUSAL, stoapb.Level_FAST}[rand.IntN(3)]
	switch n := rand.IntN(100); {
	case n < 45:
		return c.put(key, fmt.Sprint(len(c.asked)), 0)
	case n < 85:
		a := &stressAsk{key: key}
		a.Kind, a.Key, a.Level = stoapb.Kind_RANGE, []byte(key), level
		return a
	case n < 90:
		a := &stressAsk{}
		a.Kind, a.Level = stoapb.Kind_RANGE, level
		a.Message = &pb.RangeRequest{Key: fmt.Appendf(nil, "s%d-", c.id), RangeEnd: fmt.Appendf(nil, "s%d.", c.id)}
		return a
	case n < 93 && len(c.watches) < 3:
		a := &stressAsk{}
		a.Kind, a.Level = stoapb.Kind_WATCH, level
		a.Message = &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "s%d-", c.id), RangeEnd: fmt.Appendf(nil, "s%d.", c.id)}
		return a
	case n < 95:
		return &stressAsk{Request: session.Request{Kind: stoapb.Kind_PROGRESS}}
	case n < 97:
		return &stressAsk{Request: session.Request{Kind: stoapb.Kind_SYNC}}
	default:
		a := &stressAsk{}
		a.Kind, a.Message = stoapb.Kind_CANCEL, &pb.WatchCancelRequest{WatchId: int64(rand.IntN(len(c.asked) + 1))}
		return a
	}
}

func (c *stressClient) put(key, value string, lease int64) *stressAsk {
	r := &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}
	a := &stressAsk{key: key, value: value}
	a.Kind, a.Key = stoapb.Kind_PUT, r.Key
	a.Body, _ = proto.Marshal(r)
	if lease != 0 {
		a.Message = r
	}
	return a
}

func (c *stressClient) closing() *stressAsk {
	return &stressAsk{Request: session.Request{Kind: stoapb.Kind_CLOSE}}
}

// process is one of a server that runs.
func (c *stressClient) process() *rigProcess {
	for {
		if p := c.r.servers[rand.IntN(3)].process.Load(); !p.down.Load() {
			return p
		}
		time.Sleep(time.Millisecond)
	}
}

func (c *stressClient) grant() {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		done := make(chan error, 1)
		core := c.process().core.Load()
		core.propose(command.SessionOpen, &pb.LeaseGrantRequest{ID: c.id, TTL: LeaseTTL(c.ttl)}, func(out replica.Outcome) { done <- out.Err })
		err := <-done
		if err == nil || errors.Is(err, fault.LeaseExists) {
			return
		}
		if time.Since(begun) > stressLimit {
			c.r.t.Errorf("session %d could not be opened: %v", c.id, err)
			return
		}
	}
}

// open opens a stream on a random server, and sends again all that has no reply.
func (c *stressClient) open() {
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		p, asked := c.process(), time.Now()
		ttl, err := p.renewed(context.Background(), c.id, 0)
		if errors.Is(err, fault.LeaseNotFound) {
			c.ended = append(c.ended, c.id)
			c.begin()
			return
		}
		if err != nil {
			if time.Since(begun) > stressLimit {
				c.r.t.Errorf("no server resumes session %d: %v", c.id, err)
				return
			}
			continue
		}
		s := c.stressSession
		s.mu.Lock()
		if s.sink != nil {
			s.sink.stale = true
		}
		s.sink = &stressSink{s: s}
		o := &stoapb.OpenSession{Session: s.id, Next: uint64(s.replied + 1), Sent: s.carried, Revision: s.shown}
		watches := s.resumed()
		again := s.asked[s.replied:]
		s.mu.Unlock()
		s.handle, _ = p.sessions.Open(Lease{s.id, ttl, asked}, User{}, o, watches, s.sink)
		s.handle.Start()
		c.take(again, s.sink)
		return
	}
}

// resumed returns the watches that the next stream opens again.
func (s *stressSession) resumed() []session.Item {
	items := session.NewItems(len(s.watches))
	i := 0
	for seq, w := range s.watches {
		it := &items[i]
		i++
		it.Seq, it.Kind, it.Level = seq, stoapb.Kind_WATCH, w.level
		it.Message = &pb.WatchCreateRequest{
			Key: fmt.Appendf(nil, "s%d-", s.id), RangeEnd: fmt.Appendf(nil, "s%d.", s.id), StartRevision: w.next,
		}
	}
	return items
}

// send sends new requests.
func (c *stressClient) send(some ...*stressAsk) {
	s := c.stressSession
	s.mu.Lock()
	for _, a := range some {
		a.since = time.Now()
		if rand.IntN(20) == 0 {
			a.token = s.shown
		}
	}
	s.asked = append(s.asked, some...)
	s.mu.Unlock()
	c.take(some, s.sink)
}

// take hands the last requests to a stream.
func (c *stressClient) take(some []*stressAsk, sink *stressSink) {
	s := c.stressSession
	s.mu.Lock()
	items := session.NewItems(len(some))
	first := len(s.asked) - len(some) + 1
	for i, a := range some {
		it := &items[i]
		it.Request = a.Request
		if a.Message != nil {
			it.Message = proto.Clone(a.Message)
		}
		if a.Body == nil && a.Message != nil {
			it.Body, _ = proto.Marshal(a.Message)
		}
		it.Seq, it.Token, it.Bytes = uint64(first+i), a.token, len(it.Body)
		s.carried = max(s.carried, it.Seq)
	}
	answered := uint64(s.replied)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stressTimeout)
	defer cancel()
	_ = s.handle.Take(ctx, items, answered) // after an error the stream has ended, or is full
}

// waitForReplies waits until no more than so many requests are unanswered, and resumes the session
// on another server when the stream has ended. A stream that neither replies nor ends is
// an error.
func (c *stressClient) waitForReplies(left int) {
	last, heard := -1, time.Now()
	for {
		s := c.stressSession
		s.mu.Lock()
		replied, all, over := s.replied, len(s.asked), s.over
		var oldest *stressAsk
		if replied < all {
			oldest = s.asked[replied]
		}
		s.mu.Unlock()
		if replied != last {
			last, heard = replied, time.Now()
		}
		ended := false
		select {
		case <-s.handle.Done():
			ended = true
		default:
		}
		switch {
		case over:
			c.ended = append(c.ended, s.id)
			c.r.counts.closed.Add(1)
			return
		case ended && errors.Is(s.handle.Err(), fault.SessionGone):
			c.ended = append(c.ended, s.id)
			c.begin()
			return
		case oldest != nil && time.Since(oldest.since) > stressLimit:
			c.r.t.Errorf("session %d: request %d, a %v, has no reply on any stream", s.id, replied+1, oldest.Kind)
			c.ended = append(c.ended, s.id)
			c.begin()
			return
		case ended || oldest != nil && time.Since(heard) > stressSilence:
			if !ended {
				c.r.t.Errorf("session %d: request %d, a %v, has neither a reply nor ended the stream for %v",
					s.id, replied+1, oldest.Kind, stressSilence)
			}
			s.handle.Close()
			c.r.counts.broken.Add(1)
			c.open()
			last, heard = -1, time.Now()
		case all-replied <= left:
			return
		default:
			time.Sleep(50 * time.Microsecond)
		}
	}
}
