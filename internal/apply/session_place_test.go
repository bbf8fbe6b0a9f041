package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// A write of a session has taken effect, and its client hasn't heard so. It sends it again by a server with an old
// map, and the copy comes to a partition that knows nothing of it. What would refuse the write now must not
// refuse the copy there: it is sent on to where its answer is. Below the level it is refused, as by the releases before.
func TestACopyIsNotRefusedElsewhere(t *testing.T) {
	key := []byte("/a/1")
	put := &pb.PutRequest{Key: key}
	for name, c := range map[string]struct {
		req proto.Message
		now func(*guarded)
		err error
		// below is what it is refused with elsewhere below the level: of a transaction the place is asked for first.
		below error
	}{
		"the right is gone, put": {put, (*guarded).takeRight, fault.PermissionDenied, fault.PermissionDenied},
		"the right is gone, txn": {&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}}}, (*guarded).takeRight, fault.PermissionDenied, fault.Moved},
		"no space":               {put, (*guarded).fill, fault.NoSpace, fault.NoSpace},
	} {
		for level, elsewhere := range map[version.Level]error{levelOfRefusalsInPlace - 1: c.below, levelOfRefusalsInPlace: fault.Moved} {
			t.Run(fmt.Sprintf("%s, %v", name, level), func(t *testing.T) {
				g := guard(t, 2)
				g.at(level)
				a := g.credential("a")
				require.NoError(t, g.do(a, command.SessionOpen, &pb.LeaseGrantRequest{ID: 7, TTL: 60}, g.Placement().All()).Err)
				here := g.Parts(put)
				there := g.Placement().All() &^ here
				first := g.numbered(a, 1, c.req, here)
				require.NoError(t, first.Err)
				c.now(g)
				require.ErrorIs(t, g.numbered(a, 1, c.req, there).Err, elsewhere)
				again := g.numbered(a, 1, c.req, here)
				require.NoError(t, again.Err)
				require.Equal(t, first.Rev, again.Rev)
				require.ErrorIs(t, g.numbered(a, 2, c.req, here).Err, c.err, "the test is about nothing")
			})
		}
	}
}

// numbered executes a write of session 7.
func (g *guarded) numbered(user, seq uint64, req proto.Message, parts placement.Set) (out Result) {
	body, err := proto.Marshal(req)
	require.NoError(g.t, err)
	kind := command.Put
	if _, is := req.(*pb.TxnRequest); is {
		kind = command.Txn
	}
	q := command.Sequenced{Session: 7, Seq: seq, Kind: kind, Body: body}
	g.stamp += 10
	e := &command.Entry{Commands: []command.Command{{Kind: command.InSession, User: user, Body: q.AppendTo(nil)}}, Stamp: g.stamp}
	g.entry(e, parts, func(_ int, r Result) { out = r })
	return out
}

func (g *guarded) takeRight() {
	g.admin(&pb.InternalRaftRequest{AuthUserRevokeRole: &pb.AuthUserRevokeRoleRequest{Name: "a", Role: "a"}})
}

func (g *guarded) fill() {
	req := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: pb.AlarmType_NOSPACE}
	require.NoError(g.t, g.do(g.credential("root"), command.Alarm, req, g.Placement().All()).Err)
}
