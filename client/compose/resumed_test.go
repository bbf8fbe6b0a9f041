package compose

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client/compose/internal/commit"
	"github.com/stoa-kv/stoa/client/mirror"
)

// breaking is a member at revision 14 whose first stream of watches breaks when one is open. The next ones bring what there is from
// their start revision on, through 15.
type breaking struct {
	pb.UnimplementedWatchServer
	streams chan struct{} // has room for one
}

func (s breaking) Watch(st pb.Watch_WatchServer) error {
	r, err := st.Recv()
	if err != nil {
		return err
	}
	header := &pb.ResponseHeader{Revision: 14}
	if err := st.Send(&pb.WatchResponse{Header: header, Created: true}); err != nil {
		return err
	}
	select {
	case s.streams <- struct{}{}:
		return status.Error(codes.Unavailable, "broken")
	default:
	}
	q := r.GetCreateRequest()
	for rev := q.StartRevision; rev <= 15; rev++ {
		kv := &mvccpb.KeyValue{Key: q.Key, ModRevision: rev, Version: 1}
		if err := st.Send(&pb.WatchResponse{Header: header, Events: []*mvccpb.Event{{Kv: kv}}}); err != nil {
			return err
		}
	}
	<-st.Context().Done()
	return st.Context().Err()
}

// A watch brings nothing from before it was open, though its stream breaks before anything has come.
func TestWatchesBeginOnce(t *testing.T) {
	for _, kind := range []Kind{Etcd, Stoa} {
		open := func() *Client {
			s := breaking{streams: make(chan struct{}, 1)}
			return ofKind(t, kind, 0, func(g *grpc.Server) { pb.RegisterWatchServer(g, s) })
		}
		first := func(events []*clientv3.Event) {
			require.EqualValues(t, 15, events[0].Kv.ModRevision, kind)
			require.Equal(t, "k", string(events[0].Kv.Key))
		}

		r := <-open().Watch(t.Context(), "k")
		require.NoError(t, r.Err())
		first(r.Events)

		f := open().NewFeed()
		defer f.Close()
		all, err := f.Watch(t.Context(), "k")
		require.NoError(t, err)
		require.EqualValues(t, 14, all[0].Begin())
		n, err := f.Next(t.Context())
		require.NoError(t, err)
		first(n.Events)
	}
}

// Beside a learner of etcd's, which has no streams, watches are a voter's.
func TestWatchesBesideALearner(t *testing.T) {
	voter := searching{}
	open := func() *Client {
		c, err := New(Config{
			Clusters: map[string]Cluster{"one": {Near: []string{serve(t, learning{}.register)}, Endpoints: []string{serve(t, voter.register)}, Kind: Etcd}},
			Routes:   []Route{{Cluster: "one"}},
		})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, ok := <-open().Watch(ctx, "k", clientv3.WithRev(5))
	require.True(t, ok)
	require.NoError(t, r.Err())
	require.EqualValues(t, 500, r.Events[0].Kv.ModRevision)

	n, err := feedOf(t, open()).Next(ctx)
	require.NoError(t, err)
	require.NoError(t, n.Err)
	require.EqualValues(t, 500, n.Revision)
}

// answering is a member at revision 14 with an extension, which answers each request for a watch with a key of revision 9. Then the stream breaks.
type answering struct {
	pb.UnimplementedWatchServer
	from chan int64 // start revisions
}

func (s answering) Watch(st pb.Watch_WatchServer) error {
	r, err := st.Recv()
	if err != nil {
		return err
	}
	s.from <- r.GetCreateRequest().StartRevision
	header := &pb.ResponseHeader{Revision: 14}
	if err := st.Send(&pb.WatchResponse{Header: header, Created: true}); err != nil {
		return err
	}
	kv := &mvccpb.KeyValue{Key: []byte("answer"), ModRevision: 9, Version: 1}
	if err := st.Send(&pb.WatchResponse{Header: header, Events: []*mvccpb.Event{{Kv: kv}}}); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "broken")
}

// The answer of an extension to a watch comes through whatever the client has seen, and the watch goes on behind the revision at
// which it was open.
func TestWatchesThatExtensionsAnswer(t *testing.T) {
	s := answering{from: make(chan int64, 2)}
	c := ofKind(t, Stoa, 0, func(g *grpc.Server) { pb.RegisterWatchServer(g, s) })
	c.core.saw(0, 12)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, ok := <-c.Watch(ctx, "k")
	require.True(t, ok, "no answer")
	require.NoError(t, r.Err())
	require.EqualValues(t, 9, r.Events[0].Kv.ModRevision)
	require.Zero(t, <-s.from)
	require.EqualValues(t, 15, <-s.from)
}

// opening is a member that opens sessions, and answers that it is at a revision.
type opening struct {
	stoapb.UnimplementedSessionsServer
	revoking
	revision atomic.Int64
}

func (o *opening) Open(g stoapb.Sessions_OpenServer) error {
	batch, err := g.Recv()
	if err != nil {
		return err
	}
	err = g.Send(&stoapb.ServerBatch{Opened: &stoapb.Opened{Session: 1, Ttl: batch.Open.Ttl}})
	for err == nil {
		if batch, err = g.Recv(); err != nil {
			return err
		}
		var replies []*stoapb.Reply
		for _, r := range batch.Requests {
			replies = append(replies, &stoapb.Reply{Seq: r.Seq, Revision: o.revision.Load()})
		}
		err = g.Send(&stoapb.ServerBatch{Replies: replies})
	}
	return err
}

// A client goes on with a cluster that was restored or made anew, and has a lower revision: it doesn't wait for those that it has seen of the one before.
func TestClusterThatHasGoneBack(t *testing.T) {
	o := &opening{revoking: revoking{revoked: make(chan int64, 10)}}
	c := ofKind(t, Stoa, patience, func(g *grpc.Server) {
		stoapb.RegisterSessionsServer(g, o)
		pb.RegisterLeaseServer(g, o)
	})
	l := c.core.links[0]
	open := func() int64 {
		require.NoError(t, l.open(time.Now().Add(time.Minute)))
		c.core.mu.Lock()
		defer c.core.mu.Unlock()
		require.Equal(t, l.seen(), l.by.seen(), "what its session waits for")
		return l.seen()
	}
	require.Zero(t, open())
	c.core.saw(0, 1000)
	for _, next := range []struct{ has, seen int64 }{{1000, 1000}, {1003, 1003}, {10, 10}, {12, 12}} {
		l.by.(*channel).abandon()
		o.revision.Store(next.has)
		require.Equal(t, next.seen, open())
	}
}

// backed is a member whose revision is what it is set to. It executes transactions, on nothing.
type backed struct {
	standingIn
	revision *atomic.Int64
}

func (b backed) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	a, err := b.standingIn.Txn(ctx, q)
	a.Header.Revision = b.revision.Load()
	return a, err
}

// What the transactions of before have seen of a cluster that has gone back since is not what a client waits for behind the next one.
func TestTransactionsInAClusterThatHasGoneBack(t *testing.T) {
	member := backed{revision: new(atomic.Int64), standingIn: standingIn{
		guarding: guarding{readable: []string{commit.Prefix}}, answers: func(*pb.TxnRequest) bool { return false }, did: make(chan *pb.TxnRequest, 100),
	}}
	c := over(t, serve(t, func(g *grpc.Server) {
		pb.RegisterKVServer(g, member)
		pb.RegisterLeaseServer(g, granting{})
	}))
	for _, revision := range []int64{100, 5} {
		member.revision.Store(revision)
		for _, l := range c.core.links {
			l.floor.Store(0) // as a new session has it, by which that is known
		}
		require.NoError(t, putBoth(t, c, "/a/t", "/b/t"))
		for _, l := range c.core.links {
			require.Equal(t, revision, l.floor.Load())
		}
	}
}

// rewound is a member that opens watches at revision 10, and then tells of a key that was changed at 11 and at 1001. Linearizable reads show
// the cluster's revision.
type rewound struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	revision int64
	reads    chan bool // serializable ones?
}

func (s rewound) register(g *grpc.Server) {
	pb.RegisterKVServer(g, s)
	pb.RegisterWatchServer(g, s)
}

func (s rewound) Range(_ context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.reads <- q.Serializable
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: s.revision}}, nil
}

func (s rewound) Watch(st pb.Watch_WatchServer) error {
	r, err := st.Recv()
	if err != nil {
		return err
	}
	header := &pb.ResponseHeader{Revision: 10}
	err = st.Send(&pb.WatchResponse{Header: header, Created: true})
	for _, rev := range []int64{11, 1001} {
		if err == nil {
			kv := &mvccpb.KeyValue{Key: r.GetCreateRequest().Key, ModRevision: rev, Version: 1}
			err = st.Send(&pb.WatchResponse{Header: header, Events: []*mvccpb.Event{{Kv: kv}}})
		}
	}
	<-st.Context().Done()
	return err
}

// A watch of a cluster that was restored or made anew, and has a lower revision than its client has seen, brings what is changed there from then on.
// Where the member alone is behind, it brings what the client hasn't seen.
func TestWatchOfAClusterThatHasGoneBack(t *testing.T) {
	for _, kind := range []Kind{Etcd, Stoa} {
		for _, at := range []struct{ revision, begin, first int64 }{{10, 10, 11}, {1000, 1000, 1001}} {
			open := func() *Client {
				s := rewound{revision: at.revision, reads: make(chan bool, 10)}
				c := ofKind(t, kind, 0, s.register)
				c.core.saw(0, 1000)
				return c
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			r := <-open().Watch(ctx, "k")
			require.NoError(t, r.Err())
			require.NotEmpty(t, r.Events)
			require.Equal(t, at.first, r.Events[0].Kv.ModRevision, kind)

			c := open()
			f := c.NewFeed()
			defer f.Close()
			all, err := f.Watch(ctx, "k")
			require.NoError(t, err)
			require.Equal(t, at.begin, all[0].Begin(), kind)
			c.core.mu.Lock()
			require.Equal(t, at.begin, c.core.links[0].seen(), "what events of other clusters wait for")
			c.core.mu.Unlock()
			n, err := f.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, at.first, n.Revision, kind)
		}
	}
}

// Local reads of a cluster of etcd's that has gone back are answered by the near member again, once one has been repeated.
func TestReadsOfAClusterThatHasGoneBack(t *testing.T) {
	s := rewound{revision: 10, reads: make(chan bool, 10)}
	c := ofKind(t, Etcd, 0, s.register)
	get := func() {
		r, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		require.EqualValues(t, 10, r.Header.Revision)
	}
	get()
	require.False(t, <-s.reads, "the first is synced")
	c.core.mu.Lock()
	c.core.links[0].raise(1000)
	c.core.mu.Unlock()
	get()
	require.True(t, <-s.reads)
	require.False(t, <-s.reads)
	get()
	require.True(t, <-s.reads)
	require.Empty(t, s.reads)
	require.EqualValues(t, 1, c.Stats().Stale)
}

// Whose a mirror is, of a cluster that has gone back, has to be found out anew: one of the cluster before may be ahead, and doesn't have what was
// put since.
func TestMirrorsOfAClusterThatHasGoneBack(t *testing.T) {
	o := &opening{revoking: revoking{revoked: make(chan int64, 10)}}
	o.revision.Store(10)
	c, err := New(Config{
		Clusters: map[string]Cluster{
			"home": {Kind: Stoa, Endpoints: []string{serve(t, func(g *grpc.Server) {
				stoapb.RegisterSessionsServer(g, o)
				pb.RegisterLeaseServer(g, o)
			})}},
			"near": {Kind: Etcd, Endpoints: []string{serve(t, searching{}.register)}},
		},
		Routes: []Route{{Prefix: "/m/", Cluster: "home", Mirrors: []string{"near"}}}, Local: "near",
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	home := c.core.links[0]
	home.twin.view.home.Store(7)
	c.core.saw(0, 1000)
	require.True(t, home.twin.view.reachable())
	require.NoError(t, home.open(time.Now().Add(time.Minute)))
	require.False(t, home.twin.view.reachable())
	require.EqualValues(t, 10, home.twin.floor.Load())
}

// What is seen over a session of the new cluster counts, also if more than one finds out that the cluster has gone back; and a session that has seen the
// one before isn't gone on with.
func TestSessionsOfAClusterThatHasGoneBack(t *testing.T) {
	for _, one := range []struct {
		name    string
		founder bool // a new session has found it out
	}{{"found out before", true}, {"found out by the watch", false}} {
		t.Run(one.name, func(t *testing.T) {
			o := &opening{revoking: revoking{revoked: make(chan int64, 10)}}
			o.revision.Store(1000)
			c := ofKind(t, Stoa, 0, func(g *grpc.Server) {
				stoapb.RegisterSessionsServer(g, o)
				pb.RegisterLeaseServer(g, o)
				pb.RegisterKVServer(g, rewound{revision: 10, reads: make(chan bool, 10)})
			})
			l := c.core.links[0]
			require.NoError(t, l.open(time.Now().Add(time.Minute)))
			c.core.saw(0, 1000)
			seg, err := c.watched("k", nil)
			require.NoError(t, err)
			w := c.core.tail(seg, nil)
			o.revision.Store(10)
			if one.founder {
				l.by.(*channel).abandon()
				require.NoError(t, l.open(time.Now().Add(time.Minute)))
			}
			w.now = 10 // where it is opened
			w.compare(t.Context(), time.Minute)
			require.Zero(t, w.after)
			require.Equal(t, one.founder, l.ready(), "a session that has seen the cluster before would wait for that")
			if !l.ready() {
				require.NoError(t, l.open(time.Now().Add(time.Minute)))
			}
			o.revision.Store(13)
			_, err = l.by.(*channel).s.Sync(t.Context())
			require.NoError(t, err)
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			require.EqualValues(t, 13, l.seen())
		})
	}
}

// tardy is a member that opens watches at revision 10, and tells the first one of 11 when it may.
type tardy struct {
	rewound
	tells chan struct{} // nil: never
}

func (s tardy) register(g *grpc.Server) {
	pb.RegisterKVServer(g, s)
	pb.RegisterWatchServer(g, s)
}

func (s tardy) Watch(st pb.Watch_WatchServer) error {
	header := &pb.ResponseHeader{Revision: 10}
	var key []byte
	for id := int64(0); ; id++ {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		if r.GetCreateRequest() == nil {
			continue
		}
		key = r.GetCreateRequest().Key
		if err := st.Send(&pb.WatchResponse{Header: header, WatchId: id, Created: true}); err != nil {
			return err
		}
		if s.tells != nil {
			break
		}
	}
	select {
	case <-s.tells:
	case <-st.Context().Done():
		return st.Context().Err()
	}
	kv := &mvccpb.KeyValue{Key: key, ModRevision: 11, Version: 1}
	err := st.Send(&pb.WatchResponse{Header: header, Events: []*mvccpb.Event{{Kv: kv}}})
	<-st.Context().Done()
	return err
}

// Events of other clusters don't wait for what a client had seen of a cluster that has gone back since: whether its watch finds that out, or another one is
// there already.
func TestFeedBesideAClusterThatHasGoneBack(t *testing.T) {
	for _, from := range []int64{0, 5} {
		feedBesideAClusterThatHasGoneBack(t, from)
	}
}

func feedBesideAClusterThatHasGoneBack(t *testing.T, from int64) {
	member := func(tells chan struct{}) tardy {
		return tardy{rewound{revision: 10, reads: make(chan bool, 100)}, tells}
	}
	a, b := member(nil), member(make(chan struct{}))
	c, err := New(Config{
		Clusters: map[string]Cluster{
			"a": {Kind: Etcd, Endpoints: []string{serve(t, a.register)}}, "b": {Kind: Etcd, Endpoints: []string{serve(t, b.register)}},
		},
		Routes: []Route{{Prefix: "/a/", Cluster: "a"}, {Prefix: "/b/", Cluster: "b"}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c.core.saw(0, 1000)
	f := c.NewFeed()
	defer f.Close()
	_, err = f.Watch(ctx, "/b/k")
	require.NoError(t, err)
	if from > 0 {
		_, err = f.Watch(ctx, "/a/j", clientv3.WithRev(from))
		require.NoError(t, err)
	}
	c.core.mu.Lock()
	c.core.depend(1) // an update
	c.core.mu.Unlock()
	_, err = f.Watch(ctx, "/a/k")
	require.NoError(t, err)
	close(b.tells)
	n, err := f.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "b", n.Cluster)
	require.EqualValues(t, 11, n.Revision)
}

// wordless is a tardy member that is cut off from the others: it answers nothing that needs them.
type wordless struct{ tardy }

func (s wordless) register(g *grpc.Server) {
	pb.RegisterKVServer(g, s)
	pb.RegisterWatchServer(g, s)
}

func (s wordless) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	if !q.Serializable {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.tardy.Range(ctx, q)
}

// A watch is opened at a member that is behind what the client has seen, though nobody tells whether the cluster is.
func TestWatchAtAMemberThatIsBehind(t *testing.T) {
	m := wordless{tardy{rewound{revision: 10, reads: make(chan bool, 100)}, nil}}
	c := ofKind(t, Etcd, patience, m.register)
	c.core.saw(0, 1000)
	f := c.NewFeed()
	defer f.Close()
	all, err := f.Watch(t.Context(), "k")
	require.NoError(t, err)
	require.EqualValues(t, 1000, all[0].Begin())
}

// marked is a member with the mark of a mirror, and nothing that changes.
type marked struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	mark mirror.Mark
}

func (s marked) Range(_ context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	value, err := json.Marshal(s.mark)
	kv := &mvccpb.KeyValue{Key: q.Key, Value: value, CreateRevision: 3, ModRevision: 3, Version: 1}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 2, Revision: 3}, Kvs: []*mvccpb.KeyValue{kv}, Count: 1}, err
}

func (marked) Watch(st pb.Watch_WatchServer) error {
	for id := int64(0); ; id++ {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		if r.GetCreateRequest() == nil {
			continue
		}
		if err := st.Send(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 3}, WatchId: id, Created: true}); err != nil {
			return err
		}
	}
}

// A watch of mirrored keys is none of a mirror that is of the cluster before, when home was replaced or restored, as far as that is known: no worker goes
// on with it, until an operator has decided. Nor is it, before that is known, one of a mirror that is behind what the client has seen: that may have been
// of the cluster before.
func TestWatchBesideTheMirrorOfAnotherHome(t *testing.T) {
	for _, one := range []struct {
		mark mirror.Mark
		told bool // whose the keys are
	}{{mirror.Mark{Source: 8, Phase: mirror.At, Revision: 5}, true}, {mirror.Mark{Source: 7, Phase: mirror.At, Revision: 10}, false}} {
		near := &marked{mark: one.mark}
		home := rewound{revision: 10, reads: make(chan bool, 10)}
		c, err := New(Config{
			Clusters: map[string]Cluster{
				"home": {Kind: Etcd, Endpoints: []string{serve(t, home.register)}},
				"near": {Kind: Etcd, Endpoints: []string{serve(t, func(g *grpc.Server) {
					pb.RegisterKVServer(g, near)
					pb.RegisterWatchServer(g, near)
				})}},
			},
			Routes: []Route{{Prefix: "/m/", Cluster: "home", Mirrors: []string{"near"}}}, Local: "near",
		})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		near.mark.Keys = c.core.routes.routes[0].said
		if one.told {
			_, err = c.Get(t.Context(), "/m/a")
			require.NoError(t, err)
		} else {
			c.core.saw(0, 1000)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, ok := <-c.Watch(ctx, "/m/a")
		require.True(t, ok, "it is of the mirror")
		require.NoError(t, r.Err())
		require.EqualValues(t, 11, r.Events[0].Kv.ModRevision)
	}
}
