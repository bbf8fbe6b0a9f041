package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The checks in front of a change of members are etcd's (server/etcdserver/server.go,
// mayAddMember and those below it): they keep a cluster from losing its quorum by the
// change. They look at this server's links, and nothing of them is in the log; what must
// hold whatever the links say is checked where the change is applied (membership.List).

// healthInterval is how long a member must have been connected to count as up.
const healthInterval = 5 * time.Second

// MemberAdd adds a member, with a vote or as a learner, and returns once all groups have
// followed.
func (n *Node) MemberAdd(ctx context.Context, peerURLs []string, learner bool) (*pb.Member, []*pb.Member, error) {
	if err := checkPeerURLs(peerURLs); err != nil {
		return nil, nil, err
	}
	id, err := drawMemberID()
	if err != nil {
		return nil, nil, err
	}
	list := n.core.Load().machine.Membership()
	change := membership.Change{
		Op: membership.Add, Member: &pb.Member{ID: id, PeerURLs: slices.Sorted(slices.Values(peerURLs))}, MaxLearners: n.cfg.MaxLearners,
	}
	if learner {
		change.Op = membership.AddLearner
	}
	if err := n.mayAdd(list, change); err != nil {
		return nil, nil, err
	}
	next, err := n.changeMembers(ctx, change)
	if err != nil {
		return nil, nil, err
	}
	return next.Find(id), next.Members, nil
}

// MemberPromote gives a learner a vote, once it is close behind the leader in all groups.
func (n *Node) MemberPromote(ctx context.Context, id uint64) ([]*pb.Member, error) {
	list := n.core.Load().machine.Membership()
	change := membership.Change{Op: membership.Promote, Member: &pb.Member{ID: id}}
	if _, err := list.Next(change); err != nil {
		return nil, err
	}
	asking, cancel := n.limited(ctx)
	defer cancel()
	if err := n.awaitLearner(asking, id); err != nil {
		return nil, err
	}
	if n.cfg.StrictReconfig && !enoughStarted(voters(list), 1, 1) {
		n.refusedChange(change, "not enough started members")
		return nil, fault.NotEnoughStarted
	}
	next, err := n.changeMembers(ctx, change)
	if err != nil {
		return nil, err
	}
	n.counts.promoted.Add(1)
	return next.Members, nil
}

// learnerPatience is how long a promotion waits for a learner: one that has just begun to serve is
// only a few messages behind.
const learnerPatience = time.Second

// awaitLearner returns nil once a learner is close behind the leader.
func (n *Node) awaitLearner(ctx context.Context, id uint64) error {
	for began := time.Now(); ; {
		err := n.retry(ctx, func() error {
			_, err := n.callLeader(ctx, methodCaughtUp, binary.AppendUvarint(nil, id))
			return err
		})
		if !errors.Is(err, fault.LearnerNotReady) || time.Since(began) > learnerPatience || n.pause(ctx, shortly) != nil {
			return err
		}
	}
}

// MemberRemove removes a member, which may be this server. It stops by itself when all
// groups have let it go.
func (n *Node) MemberRemove(ctx context.Context, id uint64) ([]*pb.Member, error) {
	list := n.core.Load().machine.Membership()
	change := membership.Change{Op: membership.Remove, Member: &pb.Member{ID: id}}
	if err := n.mayRemove(list, id); err != nil {
		return nil, err
	}
	next, err := n.changeMembers(ctx, change)
	if err != nil {
		return nil, err
	}
	return next.Members, nil
}

// MemberUpdate changes the peer URLs of a member.
func (n *Node) MemberUpdate(ctx context.Context, id uint64, peerURLs []string) ([]*pb.Member, error) {
	if err := checkPeerURLs(peerURLs); err != nil {
		return nil, err
	}
	next, err := n.changeMembers(ctx, membership.Change{
		Op: membership.Update, Member: &pb.Member{ID: id, PeerURLs: slices.Sorted(slices.Values(peerURLs))},
	})
	if err != nil {
		return nil, err
	}
	return next.Members, nil
}

// changeMembers has a change decided and waits until all groups have followed. While they
// still follow the one before, it tries again, and also if it can't know whether the change
// was decided: the leader may have been the member that it removes.
func (n *Node) changeMembers(ctx context.Context, change membership.Change) (*membership.List, error) {
	who, err := n.identify(ctx)
	if err != nil {
		return nil, err
	}
	body, err := change.Encode()
	if err != nil {
		return nil, fmt.Errorf("encoding a change of members: %w: %w", err, fault.Internal)
	}
	ctx, cancel := n.limited(ctx)
	defer cancel()
	list, err := as(ctx, n, &who, func(who identity) (*membership.List, error) { return n.decided(ctx, change, body, who) })
	if err != nil {
		return nil, err
	}
	n.log.Info("changed the members of the cluster", zap.Stringer("change", change.Op), memberID("changed-member-id", change.Member.GetID()),
		zap.Uint64("generation", list.Generation), zap.Int("members", len(list.Members)))
	return list, n.retry(ctx, func() error {
		c, err := n.present(ctx)
		if err != nil {
			return err
		}
		return await(ctx, func(done func(error)) { c.replica.AwaitSettled(list.Generation, done) })
	})
}

// decided returns the list in which a change has taken effect.
func (n *Node) decided(ctx context.Context, change membership.Change, body []byte, who identity) (list *membership.List, err error) {
	proposed := false
	err = n.retry(ctx, func() error {
		err := n.decide(ctx, command.Command{Kind: command.MemberChange, User: who.user, Body: body})
		var c *core // which may be another than it began with
		switch {
		case err == nil:
			c, err = n.present(ctx)
		case proposed && change.TookEffect(err): // and this server may be behind that
			if c, err = n.present(ctx); err == nil && c.machine.Membership().Find(n.cfg.ID) != nil { // else it has executed its removal, and gets no read point
				c, err = n.strict(ctx, placement.Of(0))
			}
		default:
			proposed = proposed || fault.Passing(err)
		}
		if err == nil {
			list = c.machine.Membership()
		}
		return err
	})
	return list, err
}

// retry tries again after a leader change, and while groups follow an earlier list. Once ctx
// has ended, it returns the last error.
func (n *Node) retry(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !fault.Passing(err) && !errors.Is(err, fault.Reconfiguring) || n.pause(ctx, shortly) != nil {
			return err
		}
	}
}

// decide has a command carried out that concerns what all partitions share, as the list of
// members, and again if their number has changed meanwhile.
func (n *Node) decide(ctx context.Context, cmd command.Command) error {
	for {
		c, err := n.present(ctx)
		if err != nil {
			return err
		}
		err = n.decideOn(ctx, c, cmd)
		if !errors.Is(err, fault.Moved) || n.pause(ctx, shortly) != nil {
			return err
		}
	}
}

func (n *Node) decideOn(ctx context.Context, c *core, cmd command.Command) error {
	return await(ctx, func(done func(error)) { c.submitToAll(cmd, 0, done) })
}

// mayAdd refuses another voter that would put the quorum at risk, and any member while the
// present ones that are connected would be no quorum with it.
func (n *Node) mayAdd(list *membership.List, change membership.Change) error {
	if !n.cfg.StrictReconfig {
		return nil
	}
	now := voters(list)
	if change.Op == membership.Add && !enoughStarted(now, 1, 0) && !(len(now) == 1 && startedOf(now) == 1) {
		n.refusedChange(change, "not enough started members")
		return fault.NotEnoughStarted
	}
	// A learner counts too, since it is to get a vote.
	if len(now) > 1 && n.connected(now, time.Now().Add(-healthInterval)) < (len(now)+1)/2+1 {
		n.refusedChange(change, "the local member has not been connected for long enough to a quorum of the voting members and the new one, which is down")
		return fault.Unhealthy
	}
	return nil
}

// mayRemove refuses to remove a voter without which the others would have no quorum.
func (n *Node) mayRemove(list *membership.List, id uint64) error {
	m := list.Find(id)
	if !n.cfg.StrictReconfig || m == nil || m.GetIsLearner() {
		return nil
	}
	change := membership.Change{Op: membership.Remove, Member: m}
	now := voters(list)
	rest := slices.DeleteFunc(slices.Clone(now), func(m *pb.Member) bool { return m.GetID() == id })
	if len(rest) == 0 || !enoughStarted(rest, 0, 0) {
		n.refusedChange(change, "not enough started members")
		return fault.NotEnoughStarted
	}
	if id != n.cfg.ID && n.transport.ConnectedSince(id).IsZero() {
		return nil // it is down, and no part of the quorum
	}
	if active := n.connected(now, time.Now().Add(-healthInterval)); active-1 < 1+(len(now)-1)/2 {
		n.refusedChange(change, "the local member is connected to too few voting members")
		return fault.Unhealthy
	}
	return nil
}

func (n *Node) refusedChange(c membership.Change, why string) {
	n.log.Warn("rejecting a change of members", zap.Stringer("change", c.Op), memberID("requested-member-id", c.Member.GetID()), zap.String("reason", why))
}

func voters(list *membership.List) []*pb.Member {
	return slices.DeleteFunc(slices.Clone(list.Members), (*pb.Member).GetIsLearner)
}

// startedOf counts the members that have announced their names.
func startedOf(list []*pb.Member) (n int) {
	for _, m := range list {
		if len(m.GetName()) > 0 || len(m.GetClientURLs()) > 0 {
			n++
		}
	}
	return n
}

// enoughStarted reports whether the started ones would be a quorum with more members, of
// which some are up.
func enoughStarted(list []*pb.Member, more, up int) bool {
	return startedOf(list)+up >= (len(list)+more)/2+1
}

// connected counts the members to which this server has had a link since a time, itself
// included.
func (n *Node) connected(list []*pb.Member, since time.Time) (active int) {
	for _, m := range list {
		at := n.transport.ConnectedSince(m.GetID())
		if m.GetID() == n.cfg.ID || !at.IsZero() && at.Before(since) {
			active++
		}
	}
	return active
}

// checkPeerURLs refuses what etcd refuses (client/pkg/types, NewURLs), and a socket without a name.
func checkPeerURLs(urls []string) error {
	if len(urls) == 0 || slices.ContainsFunc(urls, func(s string) bool { return !isPeerURL(s) }) {
		return fault.BadPeerURLs
	}
	return nil
}

func isPeerURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "http", "https":
		_, _, err := net.SplitHostPort(u.Host)
		return err == nil && u.Path == ""
	case "unix", "unixs":
		return u.Host+u.Path != ""
	}
	return false
}

func drawMemberID() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("drawing a member ID: %w", err)
	}
	return binary.BigEndian.Uint64(b[:]) | 1, nil // not 0
}

// IsLearner reports whether this server is a member without a vote.
func (n *Node) IsLearner() bool { return n.learner.Load() }

// caughtUp answers the server that is to promote a learner.
func (n *Node) caughtUp(c *core, body []byte, reply func([]byte, error)) {
	id, size := binary.Uvarint(body)
	if size <= 0 {
		reply(nil, fault.Internal)
		return
	}
	if !c.replica.CaughtUp(id) {
		reply(nil, fault.LearnerNotReady)
		return
	}
	reply(nil, nil)
}
