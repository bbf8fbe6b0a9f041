package compose

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
	"github.com/stoa-kv/stoa/client/mirror"
)

// mirroredCore is a core whose keys below /all/ are at home in "east" and read in "west"; those below /own/
// are the west's.
func mirroredCore(t *testing.T) (c *core, home, own, view int) {
	names := []string{"east", "west"}
	routes, err := newRouting(names, []Route{{Prefix: "/all/", Cluster: "east", Mirrors: []string{"west"}}, {Prefix: "/own/", Cluster: "west"}}, "west")
	require.NoError(t, err)
	cfg := Config{}.withDefaults()
	var clusters []*cluster
	for i, name := range names {
		clusters = append(clusters, newCluster(name, i, cfg))
		clusters[i].closed = true // so calls fail
		clusters[i].learner.Store(true)
	}
	return newCore(cfg, routes, clusters, newWatchdog(time.Second, 1)), 0, 1, 2
}

// reached gives a cluster a server.
func (c *cluster) reached(t *testing.T, s pb.KVServer) {
	c.closed, c.members, c.kind = false, []string{serveKV(t, s)}, Etcd
	c.learner.Store(false)
	_, err := c.dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(c.close)
}

func spelled(t *testing.T, op clientv3.Op) proto.Message {
	m, err := engine.Message(op)
	require.NoError(t, err)
	return m
}

func answerAt(revision int64) *pb.RangeResponse {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: revision}}
}

// Glances are answered in their order, whichever answer comes first, and none shows less than one before it: it
// is made as a call, which here has no server.
func TestGlancesKeepTheirOrder(t *testing.T) {
	c, _, _, view := mirroredCore(t)
	l := c.links[view]
	e := newCalls(l)
	l.by = e
	var all []*glance
	for range 4 {
		g := &glance{e: e, key: "/all/a"}
		g.To = g
		e.queue.push(queued{g: g})
		all = append(all, g)
	}
	answered := func(g *glance) bool {
		select {
		case <-g.Awaited().Done():
			return true
		default:
			return false
		}
	}
	all[3].arrive(answerAt(12), false)
	all[1].arrive(answerAt(9), false)
	require.False(t, slices.ContainsFunc(all, answered), "the first one has no answer")
	require.False(t, e.idle())
	all[0].arrive(answerAt(10), false)
	a, err := all[0].Awaited().Wait(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 10, a.Header.Revision)
	_, err = all[1].Awaited().Wait(t.Context())
	require.ErrorIs(t, err, ErrClosed, "revision 9 was read behind 10: it has to be read again")
	require.False(t, answered(all[3]), "the third one has no answer")
	all[2].arrive(nil, true) // changed behind its place
	_, err = all[2].Awaited().Wait(t.Context())
	require.Error(t, err)
	a, err = all[3].Awaited().Wait(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 12, a.Header.Revision)
	require.Eventually(t, e.idle, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 12, l.floor.Load())
	require.EqualValues(t, 4, l.got.Load())
}

// atRevision is a server that answers reads at a revision.
type atRevision struct {
	pb.UnimplementedKVServer
	revision int64
}

func (s *atRevision) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return answerAt(s.revision), nil
}

// Glances that show less than a call before them are made as calls, too, and have the time of a call.
func TestGlancesBehindACall(t *testing.T) {
	c, home, _, view := mirroredCore(t)
	l := c.links[view]
	l.cluster.reached(t, &atRevision{revision: 10})
	require.Same(t, c.links[home].cluster, l.cluster)
	e := newCalls(l)
	l.by = e
	var all []*glance
	for range 3 {
		g := &glance{e: e, key: "/all/a"}
		g.To = g
		e.queue.push(queued{g: g})
		all = append(all, g)
	}
	all[1].arrive(answerAt(9), false)
	all[2].arrive(answerAt(11), false)
	all[0].arrive(nil, false)
	for i, revision := range []int64{10, 10, 11} {
		a, err := all[i].Awaited().Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, revision, a.Header.Revision)
	}
}

// sink is a carrier that answers nothing by itself.
type sink struct{ all []*request }

func (s *sink) alive() bool { return true }
func (s *sink) send(_ context.Context, r *request) error {
	s.all = append(s.all, r)
	return nil
}
func (s *sink) saw(int64)       {}
func (s *sink) seen() int64     { return 0 }
func (s *sink) hurry(time.Time) {}
func (s *sink) close()          {}

// A read of mirrored keys goes home as long as an update there is unanswered: at the mirror it would have to
// wait for that.
func TestReadsFollowUpdatesHome(t *testing.T) {
	c, home, own, view := mirroredCore(t)
	carriers := map[int]*sink{home: {}, own: {}, view: {}}
	for at, s := range carriers {
		c.links[at].by = s
	}
	submit := func(op clientv3.Op) {
		m, _, err := (&Client{core: c, shared: &shared{}}).prepare(spelled(t, op))
		require.NoError(t, err)
		m.done = func(proto.Message, error) {}
		require.NoError(t, c.submit(t.Context(), m))
	}
	count := func() [3]int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return [3]int{len(carriers[home].all), len(carriers[own].all), len(carriers[view].all)}
	}
	become := func(want [3]int) {
		t.Helper()
		require.Eventually(t, func() bool { return count() == want }, 10*time.Second, time.Millisecond, "%v", want)
	}
	submit(clientv3.OpGet("/all/a"))
	require.Equal(t, [3]int{0, 0, 1}, count())
	_ = c.links[view].finish(read, nil)
	submit(clientv3.OpPut("/all/a", ""))
	submit(clientv3.OpGet("/all/a"))
	submit(clientv3.OpGet("/all/", clientv3.WithPrefix()))
	require.Equal(t, [3]int{3, 0, 1}, count())
	require.Equal(t, send, carriers[home].all[2].act, "nothing has to be synced")
	r := c.routes.find("/all/a")
	c.links[view].view.near.Load().places(r).learn(&place{mark: mirror.Mark{Revision: 10}, asked: time.Now().Add(time.Hour)})
	c.links[home].raise(11)
	_ = c.links[home].finish(update, nil)
	submit(clientv3.OpGet("/all/a"))
	require.Equal(t, [3]int{4, 0, 1}, count(), "the mirror lags behind the update")
	c.links[view].view.near.Load().places(r).learn(&place{at: 1, mark: mirror.Mark{Revision: 11}, asked: time.Now()})
	for range 3 {
		submit(clientv3.OpGet("/all/a"))
		require.Equal(t, [3]int{4, 0, 1}, count(), "the mirror is reached, behind what is in flight at home")
		_ = c.links[home].finish(read, nil)
	}
	become([3]int{4, 0, 4})

	// A read that waits for its turn is aimed when that has come.
	for range 3 {
		_ = c.links[view].finish(read, nil)
	}
	submit(clientv3.OpGet("/own/a"))
	submit(clientv3.OpPut("/all/a", ""))
	submit(clientv3.OpGet("/all/a"))
	become([3]int{4, 1, 4})
	_ = c.links[own].finish(read, nil)
	become([3]int{6, 1, 4})
}

// A call that a caller makes itself may be passed by others, so none does that leads: what is behind it
// relies on it.
func TestLeadingCallsAreQueued(t *testing.T) {
	c, home, own, view := mirroredCore(t)
	for _, l := range c.links {
		l.by = newCalls(l)
	}
	direct := func(at int, k kind) bool {
		return c.direct(&request{placement: placement{cluster: at}, kind: k}) != nil
	}
	require.False(t, direct(home, read), "the first of all")
	require.Equal(t, sendSynced, c.algo.arrive(home, read))
	require.True(t, direct(home, read))
	require.True(t, direct(home, update))
	require.False(t, direct(home, syncedRead))
	c.algo.outstanding = 0
	require.True(t, direct(view, read), "of the same cluster")
	c.algo.outstanding = 0
	require.False(t, direct(own, update), "a switch")
	c.links[home].failed.Store(true)
	require.False(t, direct(home, read), "unled")
}
