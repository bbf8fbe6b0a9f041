package lease

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Log takes what the leader decides. It takes effect in the given epoch or not at all: the next leader gives leases the
// time that the log says, and may have renewed them since. done is called once it is known which.
type Log interface {
	Revoke(epoch uint64, over Over, done func(error))
	Checkpoint(epoch uint64, list []Checkpoint, done func(error))
}

// Leader is what the leader does with leases: its expirer knows when they end, and the log is told what other leaders
// must know of that. It is safe for concurrent use.
type Leader struct {
	Expirer *Expirer

	now   func() time.Time
	epoch atomic.Uint64 // that of the expirer, or 0
	// order is held from when the expirer gives out a checkpoint or a reset until that is proposed.
	order sync.Mutex
}

// NewLeader returns one that doesn't lead, with the clock that it goes by.
func NewLeader(now func() time.Time) *Leader { return &Leader{Expirer: NewExpirer(), now: now} }

// Lead begins an epoch; see [Expirer.Promote].
func (l *Leader) Lead(epoch uint64, table *Table, extend time.Duration) (set func()) {
	l.epoch.Store(epoch)
	return l.Expirer.Promote(l.now(), table, extend)
}

// Follow ends the epoch.
func (l *Leader) Follow() {
	l.epoch.Store(0)
	l.Expirer.Demote()
}

// Renew gives a lease its full time again. It is done, with the TTL, once the log doesn't say any more that less
// remains.
func (l *Leader) Renew(log Log, id int64, done func(ttl int64, err error)) {
	epoch := l.epoch.Load() // read first, as in Expire
	if epoch == 0 {
		done(0, fault.NotLeader)
		return
	}
	l.order.Lock()
	defer l.order.Unlock()
	r, err := l.Expirer.Renew(id, l.now())
	if err != nil || r.Reset == nil {
		done(r.TTL, err)
		return
	}
	log.Checkpoint(epoch, r.Reset, func(err error) {
		if err == nil {
			l.Expirer.Cleared(r)
		}
		done(r.TTL, err)
	})
}

// Shorten gives a lease less than its full time, in seconds. It is done once the log says so.
func (l *Leader) Shorten(log Log, id, remaining int64, done func(error)) {
	epoch := l.epoch.Load() // read first, as in Expire
	if epoch == 0 {
		done(fault.NotLeader)
		return
	}
	l.order.Lock()
	defer l.order.Unlock()
	shorter, err := l.Expirer.Shorten(id, remaining, l.now())
	if err != nil || shorter == nil {
		done(err)
		return
	}
	log.Checkpoint(epoch, shorter, done)
}

// Expire has the log revoke what has run out, as long as not more than so many revocations are under way, and note up to
// so many checkpoints.
func (l *Leader) Expire(log Log, revocations, checkpoints int) {
	epoch := l.epoch.Load() // read first: what is due may only be so in a later one, never in an earlier one
	if epoch == 0 {
		return
	}
	for _, over := range l.Expirer.Due(l.now(), revocations) {
		log.Revoke(epoch, over, func(err error) {
			if errors.Is(err, fault.LeaseEnding) {
				l.Expirer.Again(over.ID, l.now())
			}
		})
	}
	l.order.Lock()
	defer l.order.Unlock()
	if due := l.Expirer.Checkpoints(l.now(), checkpoints); len(due) > 0 {
		log.Checkpoint(epoch, due, func(error) {})
	}
}

// TimeToLive is what is left of a lease that the table has, not above 0 when it has run out and is not revoked yet. revision is
// one that shows all that clients may have seen.
func (l *Leader) TimeToLive(granted Lease, revision int64) (*pb.LeaseTimeToLiveResponse, error) {
	left, ok := l.Expirer.Remaining(granted.ID, l.now())
	if !ok {
		return nil, fault.NotLeader
	}
	return &pb.LeaseTimeToLiveResponse{
		Header: &pb.ResponseHeader{Revision: revision},
		ID:     granted.ID, TTL: int64(left.Seconds()), GrantedTTL: granted.TTL,
	}, nil
}

// Gone is what is left of a lease that isn't there.
func Gone(id, revision int64) *pb.LeaseTimeToLiveResponse {
	return &pb.LeaseTimeToLiveResponse{Header: &pb.ResponseHeader{Revision: revision}, ID: id, TTL: -1}
}
