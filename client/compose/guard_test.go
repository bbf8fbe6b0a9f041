package compose

import (
	"context"
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
