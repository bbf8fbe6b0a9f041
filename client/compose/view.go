package compose

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// view reads mirrored keys of one cluster, their home, in another one. An answer is what home
// had at the revision of the mirror's mark: it has that revision, and its keys those of home.
//
// A view answers no more than a member of home that lags would. An answer below the
// revision that the client has seen of home is thrown away, and the read is repeated at home;
// so is every read that a mirror can't answer: because it is being copied, is of other keys,
// or is not reached.
type view struct {
	near atomic.Pointer[nearby]    // reads where the mirrors are
	home atomic.Uint64             // ID of the keys' home, 0: not known yet
	away atomic.Pointer[time.Time] // until when it isn't asked again, whoever sets the clock; nil if it may be
}

// viewTimeout bounds a read at a view: it is next to the client, and home can answer, too.
const viewTimeout = time.Second

// viewed makes the call of a local read.
func (e *calls) viewed(ctx context.Context, r *request) (proto.Message, error) {
	floor := e.l.floor.Load()
	m, err := e.l.view.read(ctx, r, floor)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case m != nil && m.Header.Revision >= floor:
		e.l.core.mirrored.Add(1)
		return m, nil
	case m != nil:
		e.l.core.stale.Add(1)
	}
	return e.decide(ctx, r)
}

// reachable reports whether the mirrors can be asked.
func (v *view) reachable() bool {
	if v.home.Load() == 0 {
		return false
	}
	away := v.away.Load()
	if away == nil {
		return true // without a look at the clock
	}
	if time.Now().Before(*away) {
		return false
	}
	v.away.CompareAndSwap(away, nil) // unless it has failed again
	return true
}

// read returns nil if the mirror can't answer. floor is the revision of home that the answer should
// have: the mark is asked for if the one that is known is below.
func (v *view) read(ctx context.Context, r *request, floor int64) (*pb.RangeResponse, error) {
	if r.mirrored == nil || !v.reachable() {
		return nil, nil
	}
	now, near := time.Now(), v.near.Load()
	asked, places := r.message.(*pb.RangeRequest), near.places(r.mirrored)
	p, renews := places.use(v.home.Load(), floor, now)
	switch {
	case renews && p != nil:
		go v.renew(near, r.mirrored)
	case renews:
		defer places.renewing.Store(false)
	}
	by := now.Add(min(viewTimeout, r.by.Sub(now)/2)) // the rest is for home
	if p != nil {
		q := p.ask(asked)
		if r.changed {
			q.Revision = p.at
		}
		if a, err := v.readAt(ctx, near, p, asked, q, by); a != nil || err != nil {
			return a, err
		}
	}
	return v.readMarked(ctx, near, r.mirrored, asked, now, by)
}

// readAt reads keys at a place, without the mark; nil if that isn't possible.
func (v *view) readAt(ctx context.Context, near *nearby, p *place, asked, q *pb.RangeRequest, by time.Time) (*pb.RangeResponse, error) {
	for ; ; q.Revision = p.at {
		m, over, err := near.ask(ctx, q, by)
		switch {
		case isNoRevision(err):
			return nil, nil // compacted in the target, or of another server
		case err != nil:
			return nil, v.failed(err)
		}
		a := m.(*pb.RangeResponse)
		switch {
		case !p.isOver(over):
			return nil, nil
		case p.shows(a, q.Revision):
			return atHome(a, asked.KeysOnly, &p.mark), nil
		case q.Revision == p.at:
			return nil, nil
		}
		// The key isn't there, or was changed since.
	}
}

// isNoRevision reports that a server can't read at a revision.
func isNoRevision(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev)
}

// readMarked reads keys and their mirror's mark at one moment, which is a place for further reads.
func (v *view) readMarked(ctx context.Context, near *nearby, r *route, asked *pb.RangeRequest, now, by time.Time) (*pb.RangeResponse, error) {
	m, over, err := near.ask(ctx, atMark(r.mark, asked), by)
	if err != nil {
		return nil, v.failed(err)
	}
	a := m.(*pb.TxnResponse)
	if len(a.Responses) != 2 {
		return nil, nil
	}
	p := &place{at: a.Header.GetRevision(), over: over, asked: now}
	if !v.learn(near, r, p, a.Responses[0].GetResponseRange()) {
		return nil, nil
	}
	return atHome(a.Responses[1].GetResponseRange(), asked.KeysOnly, &p.mark), nil
}

// renew asks for the mark, beside the reads that use the place before.
func (v *view) renew(near *nearby, r *route) {
	defer near.places(r).renewing.Store(false)
	now := time.Now()
	m, over, err := near.ask(context.Background(), &pb.RangeRequest{Key: []byte(r.mark), Serializable: true}, now.Add(viewTimeout))
	if err == nil { // else the next read that asks finds out
		a := m.(*pb.RangeResponse)
		v.learn(near, r, &place{at: a.Header.GetRevision(), over: over, asked: now}, a)
	}
}

// learn completes a place with the mark that was read there, and records it; false if the mirror can't
// be read.
func (v *view) learn(near *nearby, r *route, p *place, marks *pb.RangeResponse) bool {
	if !p.readMark(marks) || p.mark.Phase != mirror.At || p.mark.Source != v.home.Load() || p.mark.Keys != r.said {
		return false
	}
	if p.over.known() {
		near.places(r).learn(p)
	}
	return true
}

// atHome makes home's answer of a mirror's; nil if it can't be: something else has written a key.
func atHome(a *pb.RangeResponse, keysOnly bool, m *mirror.Mark) *pb.RangeResponse {
	for _, kv := range a.Kvs {
		if err := mirrored.Unstamp(kv); err != nil {
			return nil
		}
		if keysOnly {
			kv.Value, kv.Lease = nil, 0 // which home doesn't look up then
		}
	}
	if a.Header == nil {
		a.Header = new(pb.ResponseHeader)
	}
	h := a.Header
	h.ClusterId, h.MemberId, h.RaftTerm, h.Revision = m.Source, 0, 0, m.Revision
	return a
}

// failed keeps further reads from waiting for the mirror, for a while.
func (v *view) failed(err error) error {
	if !errors.Is(err, context.Canceled) {
		until := time.Now().Add(backAfter)
		v.away.Store(&until)
	}
	return err
}

// atMark reads keys and their mirror's mark at one moment.
func atMark(mark string, asked *pb.RangeRequest) *pb.TxnRequest {
	return &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(mark), Serializable: true}}},
		{Request: &pb.RequestOp_RequestRange{RequestRange: mirrorRead(asked)}},
	}}
}

// readMark takes the mark; false if there is none.
func (p *place) readMark(a *pb.RangeResponse) bool {
	if len(a.GetKvs()) == 0 {
		return false
	}
	var err error
	p.mark, err = mirror.ParseMark(a.Kvs[0].Value)
	return err == nil
}
