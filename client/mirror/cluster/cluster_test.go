package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/client/mirror"
)

// fakeWatcher is watches whose responses a test gives.
type fakeWatcher struct {
	clientv3.Watcher
	responses chan clientv3.WatchResponse
	from      chan int64 // the revisions that watches begin at
	ended     chan int64 // those of watches that have ended
	asked     int
}

func newFakeWatcher() *fakeWatcher {
	return &fakeWatcher{responses: make(chan clientv3.WatchResponse), from: make(chan int64, 10), ended: make(chan int64, 10)}
}

func (w *fakeWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	from := clientv3.OpWatch(key, opts...).Rev()
	w.from <- from
	context.AfterFunc(ctx, func() { w.ended <- from })
	return w.responses
}

func (w *fakeWatcher) RequestProgress(context.Context) error {
	w.asked++
	return nil
}

func put(rev int64, value string) clientv3.WatchResponse {
	return clientv3.WatchResponse{Events: []*clientv3.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: []byte(value), ModRevision: rev}}}}
}

func newTestFeed(t *testing.T) (*fakeWatcher, *feed) {
	w := newFakeWatcher()
	f := newFeed(t.Context(), w, All, false, 5)
	t.Cleanup(f.Close)
	return w, f
}

// What came since the last Next is returned together.
func TestFeed(t *testing.T) {
	w, f := newTestFeed(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := f.Next(ended)
	require.ErrorIs(t, err, context.Canceled)

	w.responses <- put(7, "a")
	w.responses <- put(8, "b")
	w.responses <- clientv3.WatchResponse{} // both are taken now
	changes, through, err := f.Next(ended)
	require.NoError(t, err)
	require.EqualValues(t, 8, through)
	require.Equal(t, []mirror.Change{{Revision: 7, Key: []byte("k"), Value: []byte("a")}, {Revision: 8, Key: []byte("k"), Value: []byte("b")}}, changes)

	require.NoError(t, f.Ask(t.Context()))
	require.Equal(t, 1, w.asked)
	w.responses <- put(9, "c")
	w.responses <- clientv3.WatchResponse{CompactRevision: 20, Canceled: true}
	changes, _, err = f.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, changes, 1, "before the error")
	for range 2 {
		_, _, err = f.Next(t.Context())
		require.ErrorIs(t, err, mirror.ErrCompacted)
	}
}

// A feed whose watch ends says so, and it passes.
func TestFeedEnds(t *testing.T) {
	w, f := newTestFeed(t)
	close(w.responses)
	_, _, err := f.Next(t.Context())
	require.True(t, Transient(err), "%v", err)
}

// A feed that is read slowly takes a bounded amount: its watch ends, since etcd's client would keep what comes, and goes on behind what was
// taken.
func TestFeedIsBounded(t *testing.T) {
	w, f := newTestFeed(t)
	require.EqualValues(t, 5, <-w.from)
	large := string(make([]byte, maxBuffered+1))
	for rev := range int64(2) { // nothing is read yet
		w.responses <- put(6+rev, large)
	}
	w.responses <- clientv3.WatchResponse{} // they are in the feed now
	_, through, err := f.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 7, through)
	require.Empty(t, w.ended)

	w.responses <- put(8, large)
	require.EqualValues(t, 5, <-w.ended)
	require.NoError(t, f.Ask(t.Context()))
	require.Zero(t, w.asked)
	select {
	case w.responses <- put(9, "b"):
		t.Fatal("it takes more")
	case <-w.from:
		t.Fatal("it begins again")
	case <-time.After(50 * time.Millisecond):
	}
	_, through, err = f.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 8, through)
	require.EqualValues(t, 9, <-w.from)
	w.responses <- put(9, "b")
	_, through, err = f.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 9, through)
}

func TestTransient(t *testing.T) {
	for _, err := range []error{rpctypes.ErrNoLeader, rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged, rpctypes.ErrTooManyRequests,
		context.DeadlineExceeded, status.Error(codes.Unavailable, "connection refused"), fmt.Errorf("reading: %w", rpctypes.ErrNoLeader)} {
		require.True(t, Transient(err), "%v", err)
	}
	for _, err := range []error{rpctypes.ErrNoSpace, rpctypes.ErrKeyNotFound, rpctypes.ErrPermissionDenied, rpctypes.ErrTooManyOps,
		context.Canceled, mirror.ErrCompacted, errors.New("other")} {
		require.False(t, Transient(err), "%v", err)
	}
}

// fakeKV is a cluster of so many keys of a size.
type fakeKV struct {
	clientv3.KV
	keys, size int
	limits     []int64
}

func (f *fakeKV) Get(_ context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, opts...)
	f.limits = append(f.limits, op.Limit())
	r := &clientv3.GetResponse{}
	for i := range f.keys {
		k := fmt.Sprintf("%08d", i)
		if k < key {
			continue
		}
		if int64(len(r.Kvs)) == op.Limit() {
			r.More = true
			break
		}
		r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: []byte(k), Value: make([]byte, f.size)})
	}
	return r, nil
}

// All keys are read once, in pages that grow with small keys and shrink with large ones.
func TestPages(t *testing.T) {
	for _, c := range []struct {
		keys, size int
		largest    int64
	}{{5000, 10, 4096}, {200, 1 << 20, 64}, {0, 0, 64}} {
		kv := &fakeKV{keys: c.keys, size: c.size}
		p := newPager(kv, All)
		read, from := 0, []byte{}
		for from != nil {
			kvs, next, err := p.page(t.Context(), from, 0)
			require.NoError(t, err)
			for i, x := range kvs {
				require.Equal(t, fmt.Sprintf("%08d", read+i), string(x.Key))
			}
			read, from = read+len(kvs), next
		}
		require.Equal(t, c.keys, read)
		most := int64(0)
		for _, l := range kv.limits {
			most = max(most, l)
		}
		require.Equal(t, c.largest, most)
		require.Less(t, len(kv.limits), 20)
	}
}

// readable is a cluster with one key that the user may read.
type readable struct {
	clientv3.KV
	key string
}

func (r readable) Get(_ context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if key != r.key {
		return nil, rpctypes.ErrPermissionDenied
	}
	return &clientv3.GetResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 8}}, nil
}

// A source asks for nothing but its own keys: more needn't be allowed to a worker.
func TestSourceReadsItsOwnKeys(t *testing.T) {
	c := clientv3.NewCtxClient(t.Context())
	c.KV = readable{key: "/a/"}
	s := NewSource(c, Prefix("/a/"))
	id, err := s.ID(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 7, id)
	revision, err := s.Revision(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 8, revision)
}

// fakeCalls is a cluster without keys. With an extension that handles transactions, these are answered as executed and are not.
type fakeCalls struct {
	pb.KVClient
	extended bool
	mark     *mvccpb.KeyValue
}

func (f *fakeCalls) Range(context.Context, *pb.RangeRequest, ...grpc.CallOption) (*pb.RangeResponse, error) {
	r := &pb.RangeResponse{Header: &pb.ResponseHeader{}}
	if f.mark != nil {
		r.Kvs = append(r.Kvs, f.mark)
	}
	return r, nil
}

func (f *fakeCalls) Txn(_ context.Context, t *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	r := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 5}, Succeeded: true}
	for _, op := range t.Success {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			done := &pb.PutResponse{}
			if string(o.RequestPut.Key) == "mark" && !f.extended {
				done.PrevKv, f.mark = f.mark, &mvccpb.KeyValue{Key: o.RequestPut.Key, Value: o.RequestPut.Value, ModRevision: 5}
			}
			r.Responses = append(r.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: done}})
		case *pb.RequestOp_RequestDeleteRange:
			done := &pb.DeleteRangeResponse{}
			if !f.extended {
				done.Deleted = 1
			}
			r.Responses = append(r.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: done}})
		case *pb.RequestOp_RequestTxn:
			r.Responses = append(r.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Succeeded: !f.extended}}})
		}
	}
	return r, nil
}

// A transaction that an extension has answered has not taken effect.
func TestCommitsThatAnExtensionAnswers(t *testing.T) {
	f := &fakeCalls{}
	c := clientv3.NewCtxClient(t.Context())
	c.KV = clientv3.NewKVFromKVClient(f, c)
	target := NewTarget(c, All, "mark")
	put := []mirror.Op{{Key: []byte("k"), Value: []byte("v")}}
	for _, txn := range []mirror.Txn{
		{Ops: put, Mark: []byte("first")},
		{If: 5, Was: []byte("first"), Ops: put, Mark: []byte("second")},
		{If: 5, Was: []byte("second"), Ops: put},
		{If: 5, Was: []byte("second"), Finish: true},
	} {
		f.extended = true
		_, err := target.Commit(t.Context(), txn)
		require.ErrorIs(t, err, errExtended, "%+v", txn)
		require.False(t, Transient(err), "who has the mark finds out what there is")
		f.extended = false
		r, err := target.Commit(t.Context(), txn)
		require.NoError(t, err, "%+v", txn)
		require.Equal(t, mirror.Result{Revision: 5}, r)
	}
}
