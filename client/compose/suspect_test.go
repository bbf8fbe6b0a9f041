package compose

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// cutOff is a member that others don't reach: it answers what it can alone, and nothing that needs a quorum.
type cutOff struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
}

func (m cutOff) register(g *grpc.Server) {
	pb.RegisterKVServer(g, m)
	pb.RegisterLeaseServer(g, m)
}

func (cutOff) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	if q.Serializable {
		return answerAt(9), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (cutOff) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return nil, rpctypes.ErrGRPCNoLeader
}

// Who keeps mirrors up to date, carries out commands, or sends some, or needs leases alone, has a member left that needs the others and doesn't reach
// them: these do nothing else by which it would be.
func TestWorkersLeaveAMemberThatIsCutOff(t *testing.T) {
	for what, begin := range map[string]func(context.Context, *Client){
		"mirrors":  func(ctx context.Context, c *Client) { _ = c.Mirror(ctx, MirrorOptions{}) },
		"executor": func(ctx context.Context, c *Client) { _ = c.CarryOut(ctx, CarryOutOptions{Sets: [][]string{{"one"}}}) },
		"leases":   func(ctx context.Context, c *Client) { _, _ = c.Grant(ctx, 10) },
		"transactions": func(ctx context.Context, c *Client) {
			_, _ = c.shared.locker.lease(ctx, c.shared.clusters[0])
		},
		"commands": func(_ context.Context, c *Client) {
			q, err := c.Commands("one")
			require.NoError(t, err)
			q.Send(clientv3.OpPut("/a", ""))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, err := New(Config{
				Clusters: map[string]Cluster{
					"one": {Endpoints: []string{serve(t, cutOff{}.register), serveKV(t, comparing{})}, Kind: Etcd},
					"two": {Endpoints: []string{serve(t, func(*grpc.Server) {})}, Kind: Etcd}, // where nothing can be done
				},
				Routes: []Route{{Prefix: "/a", Cluster: "one", Mirrors: []string{"two"}}}, Timeout: 300 * time.Millisecond,
			})
			require.NoError(t, err)
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go begin(ctx, c)
			moves := &c.shared.clusters[0].moves
			require.Eventually(t, func() bool { return moves.Load() > 0 }, 30*time.Second, 20*time.Millisecond)
		})
	}
}

// A member that was left because it is cut off from the others isn't returned to before it reaches them, though it answers reads that it can serve alone;
// unless no other one does: then it is returned to at once, for what it serves.
func TestReturnToAMember(t *testing.T) {
	reaches := func(g *grpc.Server) { pb.RegisterKVServer(g, comparing{}) }
	alone := cutOff{}.register
	for _, one := range []struct {
		others []func(*grpc.Server)
		at     []int // behind each look
	}{
		{[]func(*grpc.Server){reaches}, []int{1, 1}},
		{[]func(*grpc.Server){alone}, []int{0}},
		{[]func(*grpc.Server){alone, reaches}, []int{2, 2}},
		{[]func(*grpc.Server){nil, reaches}, []int{1, 1}}, // it is at the second one
		{[]func(*grpc.Server){alone, alone}, []int{0}},
		{[]func(*grpc.Server){nil, nil, nil}, []int{0}},
	} {
		endpoints := []string{serve(t, alone)}
		for n, other := range one.others {
			if other == nil {
				endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", n+1)) // it isn't there
			} else {
				endpoints = append(endpoints, serve(t, other))
			}
		}
		c, err := New(Config{
			Clusters: map[string]Cluster{"one": {Endpoints: endpoints, Kind: Etcd}},
			Routes:   []Route{{Cluster: "one"}}, DialTimeout: 300 * time.Millisecond,
		})
		require.NoError(t, err)
		defer c.Close()
		of := c.shared.clusters[0]
		near, err := of.dial(t.Context())
		require.NoError(t, err)
		of.leave()
		for _, at := range one.at {
			of.comeBack()
			of.mu.Lock()
			present, away := of.present, of.away != nil
			of.mu.Unlock()
			require.Equal(t, at, present)
			require.Equal(t, at > 0, away)
		}
		if one.at[0] == one.at[1%len(one.at)] && one.at[0] > 0 { // it is at one that reaches the others
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err = near.Get(ctx, "/a")
			require.NoError(t, err)
		}
	}
}

// How far mirrors and queues are is read at a member that answers, and a cluster that keeps silent doesn't take the time of the others.
func TestStatusBesideMembersThatAreCutOff(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	reaches := func(g *grpc.Server) { pb.RegisterKVServer(g, comparing{}) }
	of := func(registers ...func(*grpc.Server)) (all []string) {
		for _, register := range registers {
			all = append(all, serve(t, register))
		}
		return all
	}
	c, err := New(Config{
		Clusters: map[string]Cluster{
			"home": {Endpoints: of(reaches), Kind: Etcd},
			"near": {Near: of(cutOff{}.register), Endpoints: of(reaches), Kind: Etcd},
			"far":  {Endpoints: of(cutOff{}.register, reaches), Kind: Etcd},
			"lost": {Endpoints: of(cutOff{}.register), Kind: Etcd},
		},
		Routes: []Route{
			{Prefix: "/a", Cluster: "home", Mirrors: []string{"lost"}}, {Prefix: "/b", Cluster: "home", Mirrors: []string{"lost"}},
			{Prefix: "/c", Cluster: "home", Mirrors: []string{"near"}}, {Prefix: "/d", Cluster: "home", Mirrors: []string{"far"}},
		},
		Timeout: timeout,
	})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.CommandStatus(t.Context(), "far", "near")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	began := time.Now()
	all, err := c.MirrorStatus(t.Context())
	var lost *ClusterError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, "lost", lost.Cluster)
	require.Less(t, time.Since(began), timeout*3/2)
	require.Len(t, all, 2)
	require.Equal(t, []string{"near", "far"}, []string{all[0].Target, all[1].Target})
}

// garbling is a member whose keys have values that mean nothing.
type garbling struct{ pb.UnimplementedKVServer }

func (garbling) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	a := answerAt(10)
	a.Kvs = []*mvccpb.KeyValue{{Key: []byte("k"), Value: []byte("?"), ModRevision: 10}}
	return a, nil
}

func (m garbling) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	a := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 10}, Succeeded: true}
	for range q.Success {
		r, _ := m.Range(ctx, nil)
		a.Responses = append(a.Responses, responseOf(r))
	}
	return a, nil
}

// That what a member has told can't be read is no reason to leave it.
func TestStatusThatCannotBeRead(t *testing.T) {
	c, err := New(Config{
		Clusters: map[string]Cluster{
			"home": {Endpoints: []string{serveKV(t, comparing{})}, Kind: Etcd},
			"near": {Endpoints: []string{serveKV(t, garbling{}), serveKV(t, comparing{})}, Kind: Etcd},
		},
		Routes: []Route{{Prefix: "/a", Cluster: "home", Mirrors: []string{"near"}}},
	})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.MirrorStatus(t.Context())
	require.ErrorContains(t, err, "can't be read")
	_, err = c.CommandStatus(t.Context(), "near")
	require.ErrorContains(t, err, "can't be read")
	for _, of := range c.shared.clusters {
		require.Zero(t, of.moves.Load())
	}
}
