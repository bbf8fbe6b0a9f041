package compose

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// The keys of the protocols are below /stoa/ in each cluster, whatever its routes strip.
var aroundReserved = []Route{
	{Prefix: "/us/", Cluster: "us", Strip: true}, {Prefix: "/us", Cluster: "us", Strip: true}, {Prefix: "/", Cluster: "eu"},
}

func TestReservedKeysAreRefused(t *testing.T) {
	r := table(t, aroundReserved...)
	for _, op := range []clientv3.Op{
		clientv3.OpGet("/stoa/txn/record/1-1"), clientv3.OpPut("/us//stoa/queue/eu,us/mark", ""), clientv3.OpDelete("/us//stoa/"),
		clientv3.OpDelete("/stoa/", clientv3.WithPrefix()), clientv3.OpGet("/us//stoa/txn/", clientv3.WithPrefix()),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete("/stoa/x")}, nil),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete("/stoa/", clientv3.WithPrefix())}, nil),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version("/us//stoa/x"), "=", 0)}, nil, nil),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version("/us/"), "=", 0).WithPrefix()}, nil, nil),
	} {
		m, err := engine.Message(op)
		require.NoError(t, err)
		_, err = r.place(m)
		require.ErrorIs(t, err, ErrReserved, "%v", m)
	}
	f := &Feed{c: &Client{core: &core{routes: r}}}
	for _, rev := range []int64{0, 3} {
		_, err := f.segments("/stoa/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(rev)})
		require.ErrorIs(t, err, ErrReserved, "a watch")
	}
	for _, key := range []string{"/stoa", "/stoa0", "/us//stoa", "/us/stoa/"} {
		_, err := r.one([]byte(key))
		require.NoError(t, err, key)
	}
	both := table(t, Route{Prefix: "/eu/", Cluster: "eu", Transactions: true}, Route{Prefix: "/us/", Cluster: "us", Strip: true, Transactions: true})
	_, err := both.split(&pb.TxnRequest{Success: []*pb.RequestOp{
		opOf(&pb.PutRequest{Key: []byte("/eu/a")}), opOf(&pb.PutRequest{Key: []byte("/us//stoa/txn/lock/a")}),
	}})
	require.ErrorIs(t, err, ErrReserved)
}

// What is done with a range that has reserved keys is done without them, and the answer is that to one request.
func TestRangesAroundReservedKeys(t *testing.T) {
	r := table(t, aroundReserved...)
	for _, c := range []struct{ key, end, parts string }{
		{"/us/", "/us0", `["\x00", "/stoa/") ["/stoa0", …)`},
		{"/a", "/us", `["/a", "/stoa/") ["/stoa0", "/us")`},
		{"/a", "/stoa0", `["/a", "/stoa/")`},
		{"/stoa/x", "/t", `["/stoa0", "/t")`},
		{"/stoa0", "/t", `["/stoa0", "/t")`},
		{"/a", "/stoa/", `["/a", "/stoa/")`},
	} {
		p, err := r.place(&pb.DeleteRangeRequest{Key: []byte(c.key), RangeEnd: []byte(c.end), PrevKv: true})
		require.NoError(t, err)
		m, ok := p.message.(*pb.TxnRequest)
		if !ok {
			m = &pb.TxnRequest{Success: []*pb.RequestOp{opOf(p.message)}}
		}
		require.Equal(t, c.parts, spellOps(m.Success), "%q to %q", c.key, c.end)
	}
	p, err := r.place(&pb.DeleteRangeRequest{Key: []byte("/us/"), RangeEnd: []byte("/us0"), PrevKv: true})
	require.NoError(t, err)
	one := func(key string) *pb.ResponseOp {
		return responseOf(&pb.DeleteRangeResponse{Deleted: 1, PrevKvs: []*mvccpb.KeyValue{{Key: []byte(key)}}})
	}
	a := p.back(&pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 7}, Responses: []*pb.ResponseOp{one("a"), one("z")}}).(*pb.DeleteRangeResponse)
	require.EqualValues(t, 7, a.Header.Revision)
	require.EqualValues(t, 2, a.Deleted)
	require.Equal(t, "/us/a /us/z", string(a.PrevKvs[0].Key)+" "+string(a.PrevKvs[1].Key))
}

// A watch of a range doesn't tell of reserved keys in it.
func TestEventsBesideReservedKeys(t *testing.T) {
	seg, err := table(t, aroundReserved...).single([]byte("/us/"), []byte("/us0"))
	require.NoError(t, err)
	w := &tail{seg: seg}
	event := func(key string) *clientv3.Event {
		return &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: 3}}
	}
	told := &clientv3.WatchResponse{Events: []*clientv3.Event{event("a"), event("/stoa/txn/lock/a")}}
	require.False(t, w.turn(told))
	require.Len(t, told.Events, 1)
	require.Equal(t, "/us/a", string(told.Events[0].Kv.Key))
	require.True(t, w.turn(&clientv3.WatchResponse{Events: []*clientv3.Event{event("/stoa/txn/lock/a")}}))
	require.EqualValues(t, 4, w.next)
}

// A transaction with an operation that says nothing is the cluster's to refuse.
func TestOperationsOfNothing(t *testing.T) {
	p, err := table(t, aroundReserved...).place(&pb.TxnRequest{Success: []*pb.RequestOp{opOf(&pb.PutRequest{Key: []byte("/us/a")}), {}}})
	require.NoError(t, err)
	sent := p.message.(*pb.TxnRequest).Success
	require.Equal(t, "a", string(sent[0].GetRequestPut().Key))
	require.Nil(t, sent[1].Request)
}
