package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// stressSession is a session as its client knows it. The goroutine that drives it on the
// server enters by the sink, under mu.
type stressSession struct {
	c       *stressClient
	id, ttl int64
	handle  *Session
	sink    *stressSink

	mu      sync.Mutex
	asked   []*stressAsk // by number, from 1
	replied int
	carried uint64 // the highest number that any stream has carried
	shown   int64  // the highest revision of replies and events
	seen    int64  // the highest of replies
	values  map[string]string
	puts    []int64 // revisions of puts to keys that are watched
	watches map[uint64]*stressWatch
	over    bool
}

type stressAsk struct {
	session.Request
	key, value string
	token      int64
	since      time.Time
}

// stressWatch watches all keys of its session.
type stressWatch struct {
	level  stoapb.Level
	start  int64 // events come from behind this revision
	next   int64
	events []int64
}

// stressSink receives one stream.
type stressSink struct {
	s     *stressSession
	stale bool // a newer stream has taken its place; under s.mu
	queue []func()
}

// What a client under stress is told, and holds against what it has been told before.

// Reply implements session.Sink.
func (k *stressSink) Reply(op *session.Op) {
	r := *op.Request.(*session.Request)
	seq, rev, err := op.Seq, op.Revision, op.Err
	k.queue = append(k.queue, func() { k.s.reply(seq, rev, err, &r) })
}

// Event implements session.Sink.
func (k *stressSink) Event(seq uint64, r *pb.WatchResponse) {
	k.queue = append(k.queue, func() { k.s.event(seq, r) })
}

// Placement implements session.Sink.
func (k *stressSink) Placement(*stoapb.PartitionMap) {}

// Bytes implements session.Sink. Replies and events count one each.
func (k *stressSink) Bytes() int { return len(k.queue) }

// Flush implements session.Sink.
func (k *stressSink) Flush() error {
	if k.s.c.slow {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.stale {
		return errBroken
	}
	for _, take := range k.queue {
		take()
	}
	k.queue = nil
	return nil
}

func (s *stressSession) errorf(format string, args ...any) {
	s.c.r.t.Errorf("session %d: %s", s.id, fmt.Sprintf(format, args...))
}

// reply takes a reply: in order, each once.
func (s *stressSession) reply(seq uint64, rev int64, err error, r *session.Request) {
	if seq != uint64(s.replied+1) || s.replied == len(s.asked) {
		s.errorf("reply to request %d of %d after %d replies", seq, len(s.asked), s.replied)
		return
	}
	a := s.asked[s.replied]
	s.replied++
	s.c.r.counts.answered.Add(1)
	if err != nil {
		s.refused(a, seq, err)
		return
	}
	fast := a.Level == stoapb.Level_FAST
	if floor := max(s.seen, a.token); !fast && a.Kind != stoapb.Kind_PUT && a.Kind != stoapb.Kind_CLOSE && rev < floor {
		s.errorf("request %d, a %v of level %v, is answered at %d, after %d", seq, a.Kind, a.Level, rev, floor)
	}
	switch a.Kind {
	case stoapb.Kind_PUT:
		s.values[a.key] = a.value
		if a.key[0] == 's' {
			s.puts = append(s.puts, rev)
		}
	case stoapb.Kind_RANGE:
		if !fast {
			s.found(a, seq, r)
		}
	case stoapb.Kind_WATCH:
		if w := r.Response.(*pb.WatchResponse); w.Canceled {
			s.errorf("watch %d is refused: %s", seq, w.CancelReason)
			break
		}
		s.watches[seq] = &stressWatch{level: a.Level, start: rev, next: rev + 1}
	case stoapb.Kind_CANCEL:
		delete(s.watches, uint64(a.Message.(*pb.WatchCancelRequest).WatchId))
	case stoapb.Kind_CLOSE:
		s.over = true
	}
	if !fast {
		s.seen, s.shown = max(s.seen, rev), max(s.shown, rev)
	}
	switch {
	case a.Kind == stoapb.Kind_PROGRESS:
		s.reflects(a, seq, rev, true)
	case a.Kind == stoapb.Kind_SYNC, a.Kind == stoapb.Kind_RANGE && !fast:
		s.reflects(a, seq, rev, false)
	}
}

// refused takes a reply that is an error. Only errors with a known outcome are replies;
// where it is unknown the stream ends.
func (s *stressSession) refused(a *stressAsk, seq uint64, err error) {
	write := a.Kind == stoapb.Kind_PUT || a.Kind == stoapb.Kind_CLOSE
	switch {
	case errors.Is(err, fault.NoSpace) && a.Kind == stoapb.Kind_PUT:
	case errors.Is(err, fault.ReadOvertaken) && !write:
	case errors.Is(err, fault.Timeout) && !write:
		s.c.r.counts.late.Add(1)
	case errors.Is(err, fault.SessionGone) && !write: // the end of the stream follows
	default:
		s.errorf("request %d, a %v, is refused: %v", seq, a.Kind, err)
	}
}

// found checks that a read shows the session's last writes before it.
func (s *stressSession) found(a *stressAsk, seq uint64, r *session.Request) {
	got := map[string]string{}
	if r.Kv.Exists() {
		got[string(r.Kv.Key())] = string(r.Kv.Value())
	}
	if r.Found != nil {
		for _, kv := range r.Found.Message().Kvs {
			got[string(kv.Key)] = string(kv.Value)
		}
	}
	for i := range stressKeys {
		key := fmt.Sprintf("s%d-%d", s.id, i)
		if (a.key == "" || a.key == key) && got[key] != s.values[key] {
			s.errorf("read %d of level %v shows %s=%q, and the session's last value is %q", seq, a.Level, key, got[key], s.values[key])
		}
	}
}

// reflects checks that the events up to the revision of a reply came before it. A sync that
// is sent again may name a revision above later writes of its session, so it may have more
// events before it than the client knows of puts.
func (s *stressSession) reflects(a *stressAsk, seq uint64, rev int64, all bool) {
	for number, w := range s.watches {
		if !all && w.level == stoapb.Level_FAST {
			continue
		}
		var want []int64
		for _, p := range s.puts {
			if p > w.start && p <= rev {
				want = append(want, p)
			}
		}
		have := 0
		for _, e := range w.events {
			if e <= rev {
				have++
			}
		}
		if have < len(want) || have > len(want) && a.Kind == stoapb.Kind_RANGE {
			s.errorf("the reply to request %d reflects revision %d, and watch %d has brought %d events up to there, of %d", seq, rev, number, have, len(want))
		}
	}
}

// event takes events: each once, in order.
func (s *stressSession) event(seq uint64, r *pb.WatchResponse) {
	w := s.watches[seq]
	if w == nil {
		s.errorf("events of watch %d, which is not open: %v", seq, r)
		return
	}
	if r.Canceled {
		s.errorf("watch %d is cancelled: %v", seq, r)
		return
	}
	for _, e := range r.Events {
		s.c.r.counts.events.Add(1)
		if e.Kv.ModRevision < w.next {
			s.errorf("watch %d brings an event of revision %d, and is at %d", seq, e.Kv.ModRevision, w.next)
		}
		w.next = e.Kv.ModRevision + 1
		w.events = append(w.events, e.Kv.ModRevision)
		if w.level != stoapb.Level_FAST {
			s.shown = max(s.shown, e.Kv.ModRevision)
		}
	}
}
