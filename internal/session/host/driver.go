package host

import (
	"errors"
	"time"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// driver is the state that only the goroutine that drives a session uses. It is
// the session's host.
type driver struct {
	s        *Session
	server   Server
	cfg      *Config
	order    *session.Session
	resumed  []session.Item // watches to open first
	asking   bool           // whether they may be: the leader is
	asked    bool           // and has been
	before   uint64         // requests up to here may have come over another stream
	refusals refusals
	answered uint64
	lost     error     // why the order has been lost
	broken   bool      // a reply is missing: none may follow
	moved    time.Time // since when writes have had to be planned anew
	closing  bool      // the reply to CLOSE has been handed over

	// The write that was planned last, its turn if it has to wait for one, and those
	// that go out together.
	plan  apply.Plan
	turn  *throttle.Turn
	full  bool // no turn was to be had: a timer is running
	batch *writeBatch

	reads   reads
	watches watches

	renewed   time.Time // when the last acknowledged renewal was requested
	uncovered []sign    // what is to be covered by the next
	hello     bool      // the client waits for an empty batch

	replies, bytes int // handed over since the last flush

	wantsMap bool           // its client requested the partition map
	toldMap  *placement.Map // and has got it
	toldAt   time.Time
}

// known is the state by which requests are routed.
type known struct {
	state      *State
	placed     *placement.Map
	extensions *extension.Registry
}

func (d *driver) known() known {
	st := d.server.State()
	return known{st, st.Machine.Placement(), st.Machine.Extensions()}
}

func (d *driver) init(s *Session, o *stoapb.OpenSession, watches []session.Item) {
	d.s, d.server, d.cfg = s, s.of.server, &s.of.cfg
	d.resumed, d.before = watches, o.GetSent()
	d.refusals.again = min(d.before, max(o.GetNext(), 1)+windowRequests-1)
	d.order = session.New(d, o.GetNext(), o.GetRevision())
	d.watches.init()
	d.wantsMap = o.GetPartitionMap()
}

// who says on whose behalf requests come.
func (d *driver) who() (string, int64) { return d.s.client, d.s.id }

// step takes the inputs, and does everything that is possible now.
func (d *driver) step(in *inbox) {
	d.answered = max(d.answered, in.answered)
	d.full = d.full && !in.admitted
	d.asked, d.asking = d.asked || in.rights, d.asking && !in.rights
	for _, f := range in.finished {
		d.finishWrites(f)
	}
	for _, a := range in.arrived {
		d.arrive(a)
	}
	for _, r := range in.renewals {
		d.prolong(r)
	}
	for _, b := range in.batches {
		d.heard(b.heard, d.order.Next())
		d.hello = d.hello || len(b.items) == 0
		for i := range b.items {
			d.accept(&b.items[i].Op)
		}
	}
	if !d.resume() {
		return
	}
	for {
		late := d.deliver()
		more := d.order.Advance()
		d.launch()
		if d.replies > 0 || d.s.sink.Bytes() > 0 || d.hello && len(d.uncovered) == 0 {
			d.hello = d.hello && len(d.uncovered) > 0
			if !d.flush() {
				return
			}
		}
		switch {
		case d.closing:
			d.s.end(nil)
			return
		case d.order.Ended():
			d.s.end(d.why())
			return
		case !late && !more:
			return
		}
	}
}

// why the order has been lost: that of the write that was, or that the one before
// it was lost.
func (d *driver) why() error {
	if d.lost != nil {
		return d.lost
	}
	return fault.SessionGap
}

func (d *driver) flush() bool {
	if m := d.tellMap(); m != nil {
		d.s.sink.Placement(m)
	}
	err := d.s.sink.Flush()
	d.s.replied(d.replies, d.bytes)
	d.replies, d.bytes = 0, 0
	if err != nil {
		d.s.end(err)
	}
	return err == nil
}

// accept takes a request in. A fast read is answered at once; it neither waits
// for other requests nor delays them.
func (d *driver) accept(op *session.Op) {
	r := op.Request.(*session.Request)
	if r.Kind == stoapb.Kind_WATCH {
		op.Opens, op.Unseen = true, r.Level == stoapb.Level_FAST
	}
	if !op.Done {
		d.limit(op, r)
	}
	if !op.Done && r.Level == stoapb.Level_FAST {
		op.Done = d.readNow(op, r)
	}
	d.order.Take(op)
}

// Full implements session.Host.
func (d *driver) Full() bool { return d.s.sink.Bytes() >= d.cfg.FlushBytes }

// Reply implements session.Host.
func (d *driver) Reply(op *session.Op) {
	if d.broken {
		return
	}
	r := op.Request.(*session.Request)
	d.replies++
	d.bytes += op.Bytes
	switch r.Kind {
	case stoapb.Kind_WATCH:
		d.replyWatch(op, r)
		return
	case stoapb.Kind_CLOSE:
		d.closing = true
	}
	d.s.sink.Reply(op)
}

// elsewhere reports that a request can be answered over another stream: by another server, for the user's next token, or for a user
// if there was none, since permissions weren't enforced.
func elsewhere(err error) bool {
	return errors.Is(err, fault.Fenced) || errors.Is(err, fault.AuthOldRevision) || errors.Is(err, fault.UserEmpty)
}

// abandon ends the session on this server, which can't answer a request: its client asks
// elsewhere, for this and for what follows. The writes behind it aren't issued here: they would overtake it.
func (d *driver) abandon(why error) {
	d.broken = true
	d.order.Lost()
	d.s.end(why)
}

func (d *driver) close() {
	d.turn.End()
	d.watches.close()
	d.stopReads()
}
