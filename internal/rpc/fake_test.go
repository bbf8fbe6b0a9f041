package rpc

import (
	"bytes"
	"context"
	"io"
	"net"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/watch"
)

// fakeNode is a node with a sorted list of keys and nothing behind it. err, if
// set, is the answer to everything.
type fakeNode struct {
	hub         *watch.Hub
	feed        *watch.Feed
	leader      atomic.Uint64
	learner     atomic.Bool
	fenced      atomic.Bool
	downgrading atomic.Bool
	err         atomic.Pointer[error]
	open        atomic.Pointer[error] // what the next OpenWatch fails with
	spoilt      atomic.Pointer[error] // what snapshots end with
	auth        atomic.Pointer[auth.State]
	permit      atomic.Pointer[func(root bool) error]
	commit      atomic.Pointer[chan struct{}] // writes wait until it is closed
	rev         atomic.Int64
	ranges      atomic.Int64 // that were asked for, each in one or more parts
	shows       atomic.Int64 // serializable reads, if it isn't 0
	fences      atomic.Uint64

	mu      sync.Mutex
	keys    []*mvccpb.KeyValue
	changes []store.Change
	seen    []proto.Message
	leases  map[int64]int64
}

const fakeCluster, fakeMember, fakeTerm = 11, 22, 33

func newFakeNode() *fakeNode {
	n := &fakeNode{leases: map[int64]int64{}}
	n.rev.Store(1)
	n.leader.Store(fakeMember)
	n.hub = watch.NewHub(1, n.history, watch.Options{})
	n.feed = n.hub.Reset([]int64{1}, 0)
	return n
}

func (n *fakeNode) fail(err error) { n.err.Store(&err) }

func (n *fakeNode) begin(m proto.Message) error {
	n.mu.Lock()
	n.seen = append(n.seen, m)
	n.mu.Unlock()
	if e := n.err.Load(); e != nil {
		return *e
	}
	return nil
}

func (n *fakeNode) last() proto.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.seen) == 0 {
		return nil
	}
	return n.seen[len(n.seen)-1]
}

func (n *fakeNode) history(_ int, key, end []byte, from, to int64, _ store.Bounds, _ bool) ([]store.Change, int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []store.Change
	for _, c := range n.changes {
		if c.Main >= from && c.Main <= to && within(c.Kv.Key(), key, end) {
			out = append(out, c)
		}
	}
	return out, to, nil
}

func within(k, key, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(k, key)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(k, key) >= 0
	}
	return bytes.Compare(k, key) >= 0 && bytes.Compare(k, end) < 0
}

func (n *fakeNode) head() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: n.rev.Load()} }

func (n *fakeNode) Range(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	n.ranges.Add(1)
	return n.RangeOn(ctx, r)
}

func (n *fakeNode) RangeOn(_ context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	if err := n.begin(r); err != nil {
		return nil, err
	}
	if shown := n.shows.Load(); shown > 0 && r.Serializable && r.Revision > shown {
		return nil, fault.FutureRevision
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	resp := &kvwire.RangeResponse{Header: n.head()}
	for _, kv := range n.keys {
		if !within(kv.Key, r.Key, r.RangeEnd) || r.Revision > 0 && kv.ModRevision > r.Revision {
			continue
		}
		resp.Count++
		switch {
		case r.CountOnly:
		case r.Limit > 0 && int64(len(resp.Kvs)) == r.Limit:
			resp.More = true
		default:
			resp.Kvs = append(resp.Kvs, kvwire.Of(kv))
		}
	}
	return resp, nil
}

func (n *fakeNode) Fences() uint64 { return n.fences.Load() }

func (n *fakeNode) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := n.begin(r); err != nil {
		return nil, err
	}
	if commit := n.commit.Load(); commit != nil {
		select {
		case <-*commit:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	rev := n.rev.Add(1)
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, ModRevision: rev, CreateRevision: rev, Version: 1}
	i := sort.Search(len(n.keys), func(i int) bool { return bytes.Compare(n.keys[i].Key, r.Key) >= 0 })
	var prev *mvccpb.KeyValue
	if i < len(n.keys) && bytes.Equal(n.keys[i].Key, r.Key) {
		prev, n.keys[i] = n.keys[i], kv
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
	} else {
		n.keys = append(n.keys, nil)
		copy(n.keys[i+1:], n.keys[i:])
		n.keys[i] = kv
	}
	c := store.Change{Revision: store.Revision{Main: rev}, Kv: kvwire.Of(kv), Prev: kvwire.Of(prev)}
	n.changes = append(n.changes, c)
	n.feed.Changes(0, rev, []store.Change{c})
	n.feed.Advance(0, rev)
	return &pb.PutResponse{Header: n.head()}, nil
}

func (n *fakeNode) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return &pb.DeleteRangeResponse{Header: n.head()}, n.begin(r)
}

func (n *fakeNode) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return &pb.TxnResponse{Header: n.head()}, n.begin(r)
}

// Write answers on another goroutine.
func (n *fakeNode) Write(ctx context.Context, r proto.Message, done func(Answer, error)) {
	go func() {
		ctx := context.WithoutCancel(ctx)
		switch r := r.(type) {
		case *pb.PutRequest:
			done(n.Put(ctx, r))
		case *pb.DeleteRangeRequest:
			done(n.DeleteRange(ctx, r))
		case *pb.TxnRequest:
			done(n.Txn(ctx, r))
		}
	}()
}

func (n *fakeNode) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := n.begin(r); err != nil {
		return nil, err
	}
	n.hub.Compacted(r.Revision)
	return &pb.CompactionResponse{Header: n.head()}, nil
}

// chosenLease is the ID of leases that are granted without one.
const chosenLease = 0x77

func (n *fakeNode) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if err := n.begin(r); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	id := r.ID
	if id == 0 {
		id = chosenLease
	}
	n.leases[id] = r.TTL
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: id, TTL: r.TTL}, nil
}

func (n *fakeNode) LeaseShorten(_ context.Context, id, remaining int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases[id] = remaining
	return nil
}

func (n *fakeNode) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{Header: n.head()}, n.begin(r)
}

func (n *fakeNode) LeaseRenew(_ context.Context, id int64) (int64, error) {
	if err := n.begin(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if ttl := n.leases[id]; ttl > 0 {
		return ttl, nil
	}
	return 0, fault.LeaseNotFound
}

func (n *fakeNode) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	if err := n.begin(r); err != nil {
		return nil, err
	}
	return nil, fault.LeaseNotFound
}

func (n *fakeNode) LeaseLeases(_ context.Context, r *pb.LeaseLeasesRequest, sessions bool) (*pb.LeaseLeasesResponse, error) {
	resp := &pb.LeaseLeasesResponse{Header: n.head(), Leases: []*pb.LeaseStatus{{ID: 5}}}
	if sessions {
		resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: 6})
	}
	return resp, n.begin(r)
}

func (n *fakeNode) OpenWatch(context.Context, *pb.WatchCreateRequest) (*mvccpb.Event, uint64, error) {
	if err := n.open.Swap(nil); err != nil {
		return nil, 0, *err
	}
	return nil, 0, nil
}

func (n *fakeNode) NewWatchStream(context.Context) *watch.Stream { return n.hub.NewStream("") }

func (n *fakeNode) Status(context.Context) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{
		Leader: n.leader.Load(), RaftIndex: 9, RaftAppliedIndex: 8, DbSize: 7, DbSizeInUse: 6, DbSizeQuota: 5, StorageVersion: "3.6.0",
		Errors: []string{(&pb.AlarmMember{MemberID: 22, Alarm: pb.AlarmType_NOSPACE}).String()},
	}, n.begin(&pb.StatusRequest{})
}

func (n *fakeNode) Hash(context.Context) (uint32, int64, error) {
	return 77, 5, n.begin(&pb.HashRequest{})
}

func (n *fakeNode) HashKV(_ context.Context, rev int64) (*pb.HashKVResponse, error) {
	resp := &pb.HashKVResponse{Header: &pb.ResponseHeader{Revision: 6}, Hash: 78, HashRevision: rev, CompactRevision: 2}
	return resp, n.begin(&pb.HashKVRequest{Revision: rev})
}

func (n *fakeNode) Alarm(_ context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return &pb.AlarmResponse{}, n.begin(r)
}

func (n *fakeNode) Defragment(context.Context) error { return n.begin(&pb.DefragmentRequest{}) }

func (n *fakeNode) Snapshot(context.Context) (io.ReadCloser, int64, string, error) {
	content := bytes.Repeat([]byte("stoa"), 20_000)
	r := io.Reader(bytes.NewReader(content))
	if err := n.spoilt.Load(); err != nil {
		r = io.MultiReader(r, iotest.ErrReader(*err))
	}
	return io.NopCloser(r), int64(len(content)), "3.6.0", n.begin(&pb.SnapshotRequest{})
}

func (n *fakeNode) MoveLeader(_ context.Context, to uint64) error {
	return n.begin(&pb.MoveLeaderRequest{TargetID: to})
}

func (n *fakeNode) ClusterVersion() (version.Level, bool) {
	return version.Newest, n.downgrading.Load()
}

func (n *fakeNode) Downgrade(_ context.Context, action pb.DowngradeRequest_DowngradeAction, target version.Level) error {
	list := membership.List{Level: version.Newest, Downgrading: n.downgrading.Load()}
	var err error
	switch action {
	case pb.DowngradeRequest_CANCEL:
		_, err = list.NextVersion(membership.VersionChange{Op: membership.Cancel})
	default:
		err = list.MayDowngrade(target)
	}
	if err == nil && action != pb.DowngradeRequest_VALIDATE {
		n.downgrading.Store(!n.downgrading.Load())
	}
	return err
}

func (n *fakeNode) Members(_ context.Context, linearizable bool) ([]*pb.Member, error) {
	return []*pb.Member{{ID: 22, Name: "a"}}, n.begin(&pb.MemberListRequest{Linearizable: linearizable})
}

func (n *fakeNode) MemberAdd(_ context.Context, urls []string, learner bool) (*pb.Member, []*pb.Member, error) {
	m := &pb.Member{ID: 23, PeerURLs: urls, IsLearner: learner}
	return m, []*pb.Member{{ID: 22, Name: "a"}, m}, n.begin(&pb.MemberAddRequest{PeerURLs: urls, IsLearner: learner})
}

func (n *fakeNode) MemberRemove(_ context.Context, id uint64) ([]*pb.Member, error) {
	return []*pb.Member{{ID: 22}}, n.begin(&pb.MemberRemoveRequest{ID: id})
}

func (n *fakeNode) MemberUpdate(_ context.Context, id uint64, urls []string) ([]*pb.Member, error) {
	return []*pb.Member{{ID: id, PeerURLs: urls}}, n.begin(&pb.MemberUpdateRequest{ID: id, PeerURLs: urls})
}

func (n *fakeNode) MemberPromote(_ context.Context, id uint64) ([]*pb.Member, error) {
	return []*pb.Member{{ID: id}}, n.begin(&pb.MemberPromoteRequest{ID: id})
}

func (n *fakeNode) IsLearner() bool   { return n.learner.Load() }
func (n *fakeNode) Fenced() bool      { return n.fenced.Load() }
func (n *fakeNode) ClusterID() uint64 { return fakeCluster }
func (n *fakeNode) MemberID() uint64  { return fakeMember }
func (n *fakeNode) RaftTerm() uint64  { return fakeTerm }
func (n *fakeNode) Leader() uint64    { return n.leader.Load() }
func (n *fakeNode) Revision() int64   { return n.rev.Load() }

// serve stands a server up in front of a fake node and connects to it.
func serve(t testing.TB, o Options) (*fakeNode, *grpc.ClientConn) {
	n, l := listen(t, o)
	conn, err := grpc.NewClient("passthrough:///bufnet", grpc.WithTransportCredentials(insecure.NewCredentials()), dial(l))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return n, conn
}

func listen(t testing.TB, o Options) (*fakeNode, *bufconn.Listener) {
	n := newFakeNode()
	s := NewServer(n, o)
	ctx, cancel := context.WithCancel(context.Background())
	hubDone := make(chan struct{})
	go func() { n.hub.Run(ctx); close(hubDone) }()
	l := bufconn.Listen(1 << 20)
	go func() { _ = Front(s).Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		s.Close()
		cancel()
		<-hubDone
	})
	return n, l
}

func dial(l *bufconn.Listener) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
}

// client is etcd's own client on a server.
func client(t testing.TB, o Options, dialing ...grpc.DialOption) (*fakeNode, *clientv3.Client) {
	n, l := listen(t, o)
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"passthrough:///bufnet"},
		DialOptions: append(dialing, dial(l)),
		Logger:      zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return n, c
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
