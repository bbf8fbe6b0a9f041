package node

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/version"
)

// How often the leader looks for leases to revoke or to checkpoint, and how
// many of them it takes at a time. Of revocations, which clients' writes wait
// behind, so many are under way at once; it looks again when half of them are
// done.
const (
	leaseInterval = 100 * time.Millisecond
	leaseBatch    = 1000
	maxRevoking   = 256
)

// LeaseGrant makes a lease. A TTL below what an election takes could run out
// without anybody having been able to renew it; it is raised, as in etcd.
func (n *Node) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	who, err := n.admitAs(ctx, nil)
	if err != nil {
		return nil, err
	}
	return as(ctx, n, &who, func(who identity) (*pb.LeaseGrantResponse, error) { return n.grantAs(ctx, command.LeaseGrant, r, who) })
}

func (n *Node) grantAs(ctx context.Context, kind command.Kind, r *pb.LeaseGrantRequest, who identity) (*pb.LeaseGrantResponse, error) {
	if err := n.admit(ctx, keyOverhead); err != nil {
		return nil, err
	}
	if r.GetID() == 0 {
		r.ID = int64(n.leaseIDs.Add(1) & math.MaxInt64)
	}
	r.TTL = max(r.GetTTL(), n.minTTL())
	return submitSystemAs[*pb.LeaseGrantResponse](ctx, n, kind, r, who)
}

func (n *Node) minTTL() int64 {
	return int64(math.Ceil((n.cfg.Election * 3 / 2).Seconds()))
}

// betweenSteps is the pause between the steps in which a lease ends whose keys wake event handlers. A step takes about
// a millisecond of every server, for which other writes wait.
const betweenSteps = 2 * shortly

// LeaseRevoke ends a lease and deletes its keys, in as many steps as that takes. The
// leader goes on with them if this server can't.
func (n *Node) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	who, err := n.admitAs(ctx, nil)
	if err != nil {
		return nil, err
	}
	ended := false
	for {
		resp, err := submitSystemAs[*pb.LeaseRevokeResponse](ctx, n, command.LeaseRevoke, r, who)
		switch {
		case errors.Is(err, fault.LeaseEnding):
			ended = true
			apply.Further(r)
			if err := n.pause(ctx, betweenSteps); err != nil {
				return nil, err
			}
		case ended && errors.Is(err, fault.LeaseNotFound): // the leader was faster, and this server may be behind
			c, err := n.strictAll(ctx)
			if err != nil {
				return nil, err
			}
			return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{Revision: c.replica.Revision()}}, nil
		case n.unknown(ctx, &who, err):
		default:
			return resp, err
		}
	}
}

// LeaseRenew gives a lease its full time again. Above the rate of a quota it is delayed: a
// tenant that asks for too much shouldn't lose its leases.
func (n *Node) LeaseRenew(ctx context.Context, id int64) (int64, error) {
	who, err := n.identify(ctx)
	if err != nil {
		return 0, err
	}
	if err := n.reserved(ctx, who); err != nil {
		return 0, err
	}
	return as(ctx, n, &who, func(who identity) (int64, error) { return n.renewAs(ctx, id, who.user, false) })
}

// renewAs renews a lease as a user, as that of a session if it is one, which only its owner
// may do.
func (n *Node) renewAs(ctx context.Context, id int64, user uint64, session bool) (int64, error) {
	req := binary.AppendVarint(nil, id)
	body, err := n.callLeader(ctx, methodRenew, apply.Renewer{User: user, Session: session}.AppendTo(req))
	if err != nil {
		return 0, err
	}
	ttl, size := binary.Varint(body)
	if size <= 0 {
		return 0, fault.Internal
	}
	return ttl, nil
}

// levelOfShorten is the level whose servers know methodShorten.
const levelOfShorten version.Level = 2

// LeaseShorten gives a lease that has just been granted less than its full time, in seconds. In
// a cluster of an earlier version it keeps all of it, as one that etcd restores.
func (n *Node) LeaseShorten(ctx context.Context, id, remaining int64) error {
	c, err := n.present(ctx)
	if err != nil || c.machine.Level() < levelOfShorten {
		return err
	}
	_, err = n.callLeader(ctx, methodShorten, binary.AppendVarint(binary.AppendVarint(nil, id), remaining))
	return err
}

// LeaseTimeToLive tells how long a lease has left, and its keys if asked.
func (n *Node) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	who, err := n.admitAs(ctx, nil)
	if err != nil {
		return nil, err
	}
	return as(ctx, n, &who, func(who identity) (*pb.LeaseTimeToLiveResponse, error) { return n.timeToLiveAs(ctx, r, who) })
}

func (n *Node) timeToLiveAs(ctx context.Context, r *pb.LeaseTimeToLiveRequest, who identity) (*pb.LeaseTimeToLiveResponse, error) {
	if err := n.known(ctx, who); err != nil {
		return nil, err
	}
	// Not the request itself: it may have fields that are unknown here, such as that of the user.
	req, err := proto.Marshal(&pb.LeaseTimeToLiveRequest{ID: r.GetID(), Keys: r.GetKeys()})
	if err != nil {
		return nil, err
	}
	if who.user != 0 {
		req = protowire.AppendVarint(protowire.AppendTag(req, fieldUser, protowire.VarintType), who.user)
	}
	body, err := n.callLeader(ctx, methodTimeToLive, req)
	if err != nil {
		return nil, err
	}
	resp := new(pb.LeaseTimeToLiveResponse)
	if err := proto.Unmarshal(body, resp); err != nil {
		return nil, err
	}
	n.core.Load().replica.Shown(resp.GetHeader().GetRevision())
	return resp, nil
}

// fieldUser is the user in a LeaseTimeToLiveRequest from server to server.
const fieldUser protowire.Number = 1000

// LeaseLeases lists the leases that were granted, to a user who may read all their keys. Those
// of sessions are among them only if asked for: tools revoke leases that they don't know.
func (n *Node) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest, sessions bool) (*pb.LeaseLeasesResponse, error) {
	who, err := n.admitAs(ctx, nil)
	if err != nil {
		return nil, err
	}
	return routed(ctx, n, func(*core) (*pb.LeaseLeasesResponse, error) {
		c, err := n.strictAll(ctx)
		if err != nil {
			return nil, err
		}
		list, err := c.machine.Granted(sessions)
		if err != nil {
			return nil, err
		}
		if err = c.mayReadLeases(who.user, list); n.unknown(ctx, &who, err) {
			err = c.mayReadLeases(who.user, list)
		}
		if err != nil {
			return nil, err
		}
		resp := &pb.LeaseLeasesResponse{Header: &pb.ResponseHeader{Revision: c.replica.Revision()}}
		for _, l := range list {
			resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: l.ID})
		}
		return resp, nil
	})
}

// renew acknowledges once the log doesn't say any more that less remains.
func (n *Node) renew(c *core, body []byte, reply func([]byte, error)) {
	id, size := binary.Varint(body)
	if size <= 0 {
		reply(nil, fault.Internal)
		return
	}
	if !c.machine.Auth().Enabled {
		n.renewPermitted(c, id, reply)
		return
	}
	go func() { // it reads the stores
		if err := c.machine.MayRenew(id, apply.ReadRenewer(body[size:])); err != nil {
			reply(nil, err)
			return
		}
		n.renewPermitted(c, id, reply)
	}()
}

func (n *Node) renewPermitted(c *core, id int64, reply func([]byte, error)) {
	n.leases.Renew(leaseLog{n, c}, id, func(ttl int64, err error) {
		if !errors.Is(err, fault.NotLeader) {
			n.counts.renewed.Add(1)
		}
		if err != nil {
			reply(nil, err)
			return
		}
		reply(binary.AppendVarint(nil, ttl), nil)
	})
}

// shorten replies once the log says that less remains.
func (n *Node) shorten(c *core, body []byte, reply func([]byte, error)) {
	id, size := binary.Varint(body)
	remaining, more := int64(0), 0
	if size > 0 {
		remaining, more = binary.Varint(body[size:])
	}
	if more <= 0 || remaining <= 0 {
		reply(nil, fault.Internal)
		return
	}
	n.leases.Shorten(leaseLog{n, c}, id, remaining, func(err error) { reply(nil, err) })
}

// timeToLive answers also for a lease that isn't there: the client's server may be behind, and its own revision lower than
// what the client has seen. It is that of the core that the leader was sure of.
func (n *Node) timeToLive(c *core, body []byte) ([]byte, error) {
	req := new(pb.LeaseTimeToLiveRequest)
	if err := proto.Unmarshal(body, req); err != nil {
		return nil, err
	}
	granted, found, err := c.machine.Lease(req.GetID())
	if err != nil {
		return nil, err
	}
	if !found {
		return proto.Marshal(lease.Gone(req.GetID(), c.replica.Revision()))
	}
	resp, err := n.leases.TimeToLive(granted, c.replica.Revision())
	if err != nil {
		return nil, err
	}
	if req.GetKeys() {
		// Read before the keys: none that was attached at or below it is missing, whichever partition is ahead.
		resp.Header.Revision = n.readableRevision(c)
		if resp.Keys, err = c.machine.LeaseKeys(granted.ID, userOf(req), (*auth.User).MayRead); err != nil {
			return nil, err
		}
	}
	return proto.Marshal(resp)
}

// expire revokes what has run out and checkpoints what is running out, on the leader.
func (n *Node) expire() {
	if c := n.current(); c.replica.Leading() && !n.Fenced() {
		n.leases.Expire(leaseLog{n, c}, maxRevoking, leaseBatch)
	}
}

// leaseLog is the log of a core, for what the leader decides.
type leaseLog struct {
	n *Node
	c *core
}

// Revoke implements lease.Log.
func (l leaseLog) Revoke(epoch uint64, over lease.Over, done func(error)) {
	n := l.n
	n.counts.expired.Add(1)
	l.c.propose(epoch, command.LeaseRevoke, apply.Revocation(over), func(err error) {
		done(err)
		if n.answered.Add(1)%(maxRevoking/2) == 0 {
			signal(n.revoked)
		}
		if err != nil && !errors.Is(err, fault.LeaseEnding) {
			n.log.Debug("a lease that ran out could not be revoked yet", zap.Int64("lease", over.ID), zap.Error(err))
		}
	})
}

// Checkpoint implements lease.Log.
func (l leaseLog) Checkpoint(epoch uint64, list []lease.Checkpoint, done func(error)) {
	l.c.propose(epoch, command.LeaseCheckpoint, apply.Checkpoints(list), done)
}
