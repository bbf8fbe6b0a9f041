package sim

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
)

const leaseInterval = 100 * time.Millisecond

// clock is the time for leases, the same on all servers: nothing is promised
// about leases when clocks run apart.
func (l *life) clock() time.Time { return time.Unix(1_700_000_000, 0).Add(l.sv.c.loop.now) }

// role follows the replica's, as node's does.
func (l *life) role(c *core, epoch uint64) {
	l.sv.c.loop.printf("server %d stamps: %v", l.sv.id, epoch != 0)
	if l.core != c {
		return
	}
	if epoch == 0 {
		l.leases.Follow()
		return
	}
	l.sv.c.promoted = append(l.sv.c.promoted, l.sv.c.loop.now)
	l.leases.Lead(epoch, c.leases, electionTicks*tickInterval)()
}

// leaseLoop revokes expired leases and makes checkpoints.
func (l *life) leaseLoop() {
	l.after(leaseInterval, "leases", 0, l.leaseLoop)
	if l.core.replica.Leading() {
		l.leases.Expire(leaseLog{l.core}, 100, 100)
	}
}

// leaseLog is the log of a core, for what the leader decides, as node's.
type leaseLog struct{ c *core }

// Revoke implements lease.Log.
func (l leaseLog) Revoke(epoch uint64, over lease.Over, done func(error)) {
	req := apply.Revocation(over)
	l.c.l.sv.c.expired(req)
	l.c.propose(epoch, command.LeaseRevoke, req, done)
}

// Checkpoint implements lease.Log.
func (l leaseLog) Checkpoint(epoch uint64, list []lease.Checkpoint, done func(error)) {
	l.c.propose(epoch, command.LeaseCheckpoint, apply.Checkpoints(list), done)
}

// propose submits a command of the server's own, as node's does.
func (c *core) propose(epoch uint64, kind command.Kind, req proto.Message, done func(error)) {
	body, err := proto.Marshal(req)
	if err != nil {
		panic(err)
	}
	c.replica.Submit(&replica.Write{
		Command: command.Command{Kind: kind, User: c.l.sv.c.own(), Body: body}, Parts: c.machine.Placement().All(), System: true, Epoch: epoch,
		Done: func(out replica.Outcome) { done(out.Err) },
	})
}

// Calls that only the leader can answer, as node's.
const (
	methodRenew      = replica.MethodFirstFree + iota // lease id → ttl
	methodTimeToLive                                  // LeaseTimeToLiveRequest → Response
)

// keepAlive has a lease renewed by the leader, and tries again for a while.
func (l *life) keepAlive(o *op, id int64, as apply.Renewer, reply func(proto.Message, error)) {
	body := binary.AppendVarint(nil, id)
	if l.sv.c.steward != nil { // other runs have always let everybody renew
		body = as.AppendTo(body)
	}
	l.callLeader(o, methodRenew, body, func(body []byte, err error) {
		if err != nil {
			reply(nil, err)
			return
		}
		ttl, _ := binary.Varint(body)
		reply(&pb.LeaseKeepAliveResponse{ID: id, TTL: ttl}, nil)
	})
}

// callLeader has a call answered by the leader, as node's does.
func (l *life) callLeader(o *op, method uint32, body []byte, reply func([]byte, error)) {
	deadline := l.sv.c.loop.now + requestTicks*tickInterval
	var try func()
	try = func() {
		done := func(body []byte, err error) {
			if (fault.Passing(err) || errors.Is(err, fault.Moved)) && l.sv.c.loop.now <= deadline {
				l.after(10*time.Millisecond, "renew again", uint64(o.client), try)
				return
			}
			reply(body, err)
		}
		l.core.replica.CallLeader(method, body, func() { l.core.answer(method, body, done) }, done)
	}
	try()
}

// answer is the leader's part of a call: it answers once it is sure that it leads.
func (c *core) answer(method uint32, body []byte, reply func([]byte, error)) {
	parts := placement.Of(0)
	if method == methodTimeToLive {
		parts = c.machine.Placement().All()
	}
	c.replica.ReadPoint(parts, func(err error) {
		switch {
		case err != nil:
			reply(nil, err)
		case method == methodTimeToLive:
			c.l.after(c.l.between(0, 5*time.Millisecond), "time to live", 0, func() { reply(c.timeToLive(body)) })
		default:
			c.renew(body, reply)
		}
	})
}

// renew answers once the log doesn't say any more that less remains.
func (c *core) renew(body []byte, reply func([]byte, error)) {
	id, n := binary.Varint(body)
	if n < len(body) {
		if err := c.machine.MayRenew(id, apply.ReadRenewer(body[n:])); err != nil {
			reply(nil, err)
			return
		}
	}
	c.l.leases.Renew(leaseLog{c}, id, func(ttl int64, err error) { reply(binary.AppendVarint(nil, ttl), err) })
}

// leasesEnd reports whether no lease is on its way to an end that takes several steps.
func (c *cluster) leasesEnd() bool {
	return !slices.ContainsFunc(c.alive(), func(s *server) bool {
		return s.life == nil || slices.ContainsFunc(s.life.core.leases.List(), func(l lease.Lease) bool { return l.Remaining == lease.Ending })
	})
}

// expired notes that a leader revokes a lease whose time is over.
func (c *cluster) expired(req *pb.LeaseRevokeRequest) {
	c.stats.Expired++
	c.history = append(c.history, &op{
		id: len(c.history), client: -1, req: req, strict: true, call: c.loop.now, floor: c.floor, state: unknown,
	})
}

// checkLeases: a lease that no client has revoked ends only after its time has
// passed since the grant and the last renewal that a client knows of.
func (c *cluster) checkLeases(*past) {
	ttl, ended := map[int64]time.Duration{}, map[int64]time.Duration{}
	for _, at := range slices.Sorted(maps.Keys(c.ledger.systems)) {
		e := c.ledger.systems[at]
		delete(ended, e.granted) // the ID is another one's
		if e.revoked != 0 {
			ended[e.revoked] = e.at
		}
	}
	for _, o := range c.history {
		switch r := o.req.(type) {
		case *pb.LeaseGrantRequest:
			ttl[r.ID] = time.Duration(r.TTL) * time.Second
		case *pb.LeaseRevokeRequest:
			if o.client >= 0 {
				delete(ended, r.ID)
			}
		}
	}
	for _, o := range c.history {
		var id int64
		switch r := o.req.(type) {
		case *pb.LeaseGrantRequest:
			id = r.ID
		case *pb.LeaseKeepAliveRequest:
			id = r.ID
		}
		if end, over := ended[id]; over && o.state == ok && end < o.call+ttl[id] {
			c.fail("lease", "lease %d ended at %v, and %s was answered", id, end, o)
		}
	}
}
