package compose

import (
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/mirror"
)

// place is a moment in a mirror: at revision at of the target its keys are those of home at the
// mark's revision. That is so forever, in the history that the connection shows.
type place struct {
	at    int64
	mark  mirror.Mark
	over  connection
	asked time.Time // when the mark was asked for
	// aged is set by a timer, renewAfter behind asked: reads needn't look at the clock before.
	aged atomic.Bool
}

const (
	// renewAfter is the age of a place at which the mark is asked for beside the reads. It bounds what
	// marks cost.
	renewAfter = 5 * time.Millisecond
	// oldAfter is the age at which a read asks for the mark with the keys, unless the mark is being asked
	// for. It bounds how much older than the mirror a read can be, but for the time that the mark takes.
	oldAfter = 10 * time.Millisecond
	// staleAfter is the age at which all do. It is far above oldAfter: where many reads are in flight the mark
	// comes behind them, and if they all asked for it then, it would take even longer.
	staleAfter = 250 * time.Millisecond
)

// places is where a mirror is, as far as is known by its connection. All logical clients that share that share it.
type places struct {
	known    atomic.Pointer[place]
	renewing atomic.Bool
}

// young returns the place that a read may use without a look at the clock, which many reads would notice; nil if
// that decides.
func (p *places) young(home uint64, floor int64) *place {
	known := p.known.Load()
	if known == nil || known.aged.Load() || !known.serves(home, floor) {
		return nil
	}
	return known
}

// serves reports whether a place shows all that a client has seen of its home.
func (p *place) serves(home uint64, floor int64) bool {
	return p.mark.Source == home && p.mark.Revision >= floor
}

// use returns the place that a read may use, nil if it should ask for the mark: if the place is
// of another home or older than what the client has seen of that; or if it is old, unless the mark is
// being asked for. renews is set for the one read that has to see to that: by itself, if it has no place.
func (p *places) use(home uint64, floor int64, now time.Time) (use *place, renews bool) {
	use = p.known.Load()
	if use == nil || !use.serves(home, floor) {
		return nil, false
	}
	age := now.Sub(use.asked)
	switch {
	case age < renewAfter:
		return use, false
	case age >= staleAfter:
		return nil, false
	case !p.renewing.CompareAndSwap(false, true):
		return use, false
	case age >= oldAfter:
		return nil, true
	}
	return use, true
}

// lags reports whether the mirror isn't known to have what the client has seen. If renews is set the mark is to be
// asked for, to find out when it has.
func (p *places) lags(floor int64, now time.Time) (lags, renews bool) {
	known := p.known.Load()
	switch {
	case known == nil:
		return true, false
	case known.mark.Revision >= floor:
		return false, false
	}
	return true, now.Sub(known.asked) >= renewAfter && p.renewing.CompareAndSwap(false, true)
}

// learn records a place, unless a later one is known. Revisions of another connection can't be
// compared: then it is the one that was asked for later.
func (p *places) learn(found *place) {
	for {
		known := p.known.Load()
		if known != nil && known.over == found.over && known.at > found.at {
			return
		}
		if p.known.CompareAndSwap(known, found) {
			time.AfterFunc(time.Until(found.asked.Add(renewAfter)), func() { found.aged.Store(true) })
			return
		}
	}
}

// ask is the request that reads keys at the place. One key is read as it is now, which is cheaper.
func (p *place) ask(asked *pb.RangeRequest) *pb.RangeRequest {
	q := mirrorRead(asked)
	if !isOneKey(q) {
		q.Revision = p.at
	}
	return q
}

// isOver reports whether an answer is of the process whose place it is.
func (p *place) isOver(over connection) bool { return over.known() && over == p.over }

// shows reports whether an answer over the place's connection shows the keys at the place: it does if they
// were read at its revision, or if a key that was read later, as it was then (0), has not been changed since.
func (p *place) shows(a *pb.RangeResponse, revision int64) bool {
	return revision == p.at || len(a.Kvs) == 1 && a.Kvs[0].ModRevision <= p.at
}

// mirrorRead is the part of a request that a mirror is asked for. Values are needed for the stamps
// behind them.
func mirrorRead(asked *pb.RangeRequest) *pb.RangeRequest {
	return &pb.RangeRequest{
		Key: asked.Key, RangeEnd: asked.RangeEnd, Limit: asked.Limit, SortOrder: asked.SortOrder,
		CountOnly: asked.CountOnly, Serializable: true,
	}
}
