package compose

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// extending is a member with an extension that handles all transactions, and refuses them: there is a response for each
// operation of the branch.
type extending struct {
	pb.UnimplementedKVServer
}

func (extending) Txn(_ context.Context, t *pb.TxnRequest) (*pb.TxnResponse, error) {
	a := &pb.TxnResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 2}}
	for range t.Failure {
		a.Responses = append(a.Responses, responseOf(&pb.RangeResponse{}))
	}
	return a, nil
}

// What an extension has answered isn't taken for the answer to a request of keys that may be locked.
func TestLocksBesideAnExtension(t *testing.T) {
	address := serve(t, func(g *grpc.Server) { pb.RegisterKVServer(g, extending{}) })
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{address}, Kind: Etcd}},
		Routes:   []Route{{Prefix: "/one/", Cluster: "one", Strip: true, Transactions: true}},
	})
	require.NoError(t, err)
	defer c.Close()
	for _, op := range []clientv3.Op{
		clientv3.OpGet("/one/a"), clientv3.OpPut("/one/a", ""), clientv3.OpDelete("/one/a"),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("/one/a", "")}, nil), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("/one/a")}, nil),
	} {
		_, err := c.Do(t.Context(), op)
		require.ErrorIs(t, err, ErrTransactions)
	}
}

// extendingToo answers reads as well.
type extendingToo struct{ guarding }

func (extendingToo) Txn(ctx context.Context, t *pb.TxnRequest) (*pb.TxnResponse, error) {
	return extending{}.Txn(ctx, t)
}

// Nor is one over several clusters begun again and again.
func TestTransactionsBesideAnExtension(t *testing.T) {
	address := serve(t, func(g *grpc.Server) {
		pb.RegisterKVServer(g, extendingToo{guarding{readable: []string{commit.Prefix}}})
		pb.RegisterLeaseServer(g, granting{})
	})
	c := over(t, address)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := c.Txn(ctx).Then(clientv3.OpPut("/a/t", "v"), clientv3.OpPut("/b/t", "v")).Commit()
	require.ErrorIs(t, err, ErrTransactions)
}

// standingIn is a member with an extension that answers some transactions instead, as says has it; it executes the others, on nothing.
type standingIn struct {
	guarding
	answers func(*pb.TxnRequest) bool
	says    bool
	did     chan *pb.TxnRequest // what was executed
}

func (s standingIn) Txn(_ context.Context, t *pb.TxnRequest) (*pb.TxnResponse, error) {
	instead := s.answers(t)
	a := &pb.TxnResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 2}, Succeeded: !instead || s.says}
	ops := t.Success
	if !a.Succeeded {
		ops = t.Failure
	}
	for _, op := range ops {
		switch op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			a.Responses = append(a.Responses, responseOf(&pb.RangeResponse{}))
		case *pb.RequestOp_RequestPut:
			a.Responses = append(a.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}})
		case *pb.RequestOp_RequestDeleteRange:
			a.Responses = append(a.Responses, responseOf(&pb.DeleteRangeResponse{}))
		case *pb.RequestOp_RequestTxn:
			a.Responses = append(a.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Succeeded: !instead}}})
		}
	}
	if !instead {
		s.did <- t
	}
	return a, nil
}

func overStandingIn(t *testing.T, s standingIn) *Client {
	s.guarding = guarding{readable: []string{commit.Prefix}}
	return over(t, serve(t, func(g *grpc.Server) {
		pb.RegisterKVServer(g, s)
		pb.RegisterLeaseServer(g, granting{})
	}))
}

// An update that an extension has said to succeed isn't taken for one that was executed.
func TestUpdatesThatAnExtensionAnswers(t *testing.T) {
	for _, says := range []bool{true, false} {
		c := overStandingIn(t, standingIn{answers: func(*pb.TxnRequest) bool { return true }, says: says})
		for _, op := range []clientv3.Op{
			clientv3.OpPut("/a/t", ""), clientv3.OpDelete("/a/t"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("/a/t", "")}, nil),
			clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("/a/t", ""), clientv3.OpPut("/b/t", "")}, nil),
		} {
			_, err := c.Do(t.Context(), op)
			require.ErrorIs(t, err, ErrTransactions)
		}
	}
}

// puts tells whether a transaction puts a key.
func puts(t *pb.TxnRequest, key string) bool {
	return slices.ContainsFunc(t.Success, func(op *pb.RequestOp) bool { return string(op.GetRequestPut().GetKey()) == key })
}

// A transaction is not done with while an extension, which was registered behind its locks, answers for one of the clusters.
func TestAnExtensionBehindTheLocks(t *testing.T) {
	for _, says := range []bool{true, false} {
		var registered atomic.Bool
		registered.Store(true)
		met := make(chan struct{}, 1000)
		did := make(chan *pb.TxnRequest, 1000)
		c := overStandingIn(t, standingIn{says: says, did: did, answers: func(t *pb.TxnRequest) bool {
			is := registered.Load() && puts(t, "/b/t")
			if is {
				met <- struct{}{}
			}
			return is
		}})
		_, err := c.Txn(t.Context()).Then(clientv3.OpPut("/a/t", ""), clientv3.OpPut("/b/t", "")).Commit()
		require.NoError(t, err)
		for range 3 {
			<-met // it is sent again
		}
		for _, step := range []string{"begin", "prepare", "commit"} {
			require.False(t, puts(<-did, "/b/t"), step)
		}
		require.Empty(t, did)
		registered.Store(false)
		require.True(t, puts(<-did, "/b/t"))
		require.NotEmpty(t, (<-did).Success[0].GetRequestDeleteRange().GetKey(), "the record")
	}
}

// Nor does one take effect in part if the extension was registered before the commit.
func TestAnExtensionBeforeTheCommit(t *testing.T) {
	did := make(chan *pb.TxnRequest, 1000)
	c := overStandingIn(t, standingIn{says: true, did: did, answers: func(t *pb.TxnRequest) bool { return puts(t, "/a/t") }})
	_, err := c.Txn(t.Context()).Then(clientv3.OpPut("/a/t", ""), clientv3.OpPut("/b/t", "")).Commit()
	require.ErrorIs(t, err, ErrTransactions)
	require.NoError(t, c.Close())
	close(did)
	for r := range did {
		require.False(t, puts(r, "/b/t"))
	}
}
