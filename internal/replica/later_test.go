package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// A server that comes back to a generation that has ended elsewhere may lead its groups, and find
// rendezvous of the next one in their logs. It completes the end of its own, and leaves those.
func TestALeaderLeavesRendezvousOfALaterGeneration(t *testing.T) {
	s := newStory(t, 3)
	first, next := s.replicas[0], s.replicas[1]
	ended := 0
	for _, r := range s.replicas {
		r.cfg.Resized = func() { ended++ }
		members := membership.OfIDs(1, 2, 3)
		members.Level = version.Newest
		r.cfg.Machine.LoadMembership(members, nil)
	}
	s.elect(first)
	body, err := proto.Marshal(&pb.TxnRequest{})
	require.NoError(t, err)
	for i, e := range []command.Entry{
		{Stamp: 2, Parts: first.all(), Commands: []command.Command{{Kind: command.Resize, Body: command.AppendResize(nil, 4)}}},
		{Stamp: 3, Parts: placement.Of(0) | placement.Of(2), Commands: []command.Command{{Kind: command.Txn, Body: body}}},
		{Stamp: 4, Parts: first.all(), Commands: []command.Command{{Kind: command.Txn, Body: body}}},
	} {
		e.Origin, e.Seq = 9, uint64(i+1)
		data := e.AppendTo(nil)
		first.groups[0].order(func(g *group) { require.NoError(t, g.node.Propose(data)) })
	}
	s.quiesce()
	require.Zero(t, ended, "group 1 lacks the end")

	s.said.Reset()
	s.dead[first.cfg.ID] = true
	for _, r := range s.replicas[1:] {
		for _, g := range r.groups {
			g.order(forgetLeader)
		}
	}
	for _, g := range next.groups {
		g.order(campaign)
	}
	s.quiesce()
	require.Equal(t, 2, ended, s.said.String())
	require.Contains(t, s.said.String(), `{"stamp": 2, "participants": "{0 1}", "group": 1}`)
	require.NotContains(t, s.said.String(), `"stamp": 3`)
	require.NotContains(t, s.said.String(), `"stamp": 4`)
	require.False(t, next.Leading())
}
