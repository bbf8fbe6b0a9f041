package compose

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// A place serves reads of its home, above the floor, while it is fresh; one read at a time renews it.
func TestPlacesUse(t *testing.T) {
	begun := time.Unix(1000, 0)
	p := &places{}
	use, renews := p.use(7, 1, begun)
	require.Nil(t, use)
	require.False(t, renews, "nothing is known: each read asks")

	one := &place{at: 50, mark: mirror.Mark{Source: 7, Revision: 100}, asked: begun}
	p.learn(one)
	for _, c := range []struct {
		why   string
		home  uint64
		floor int64
		want  *place
	}{{"as new as is needed", 7, 100, one}, {"the client has seen more", 7, 101, nil}, {"of another home", 8, 1, nil}} {
		use, renews = p.use(c.home, c.floor, begun.Add(renewAfter-1))
		require.Equal(t, c.want, use, c.why)
		require.False(t, renews, c.why)
	}
	use, renews = p.use(7, 1, begun.Add(oldAfter))
	require.Nil(t, use, "nothing was asked for: the read asks")
	require.True(t, renews)
	use, renews = p.use(7, 1, begun.Add(oldAfter))
	require.Equal(t, one, use, "one that asks is enough")
	require.False(t, renews)
	p.renewing.Store(false)
	use, renews = p.use(7, 1, begun.Add(renewAfter))
	require.Equal(t, one, use)
	require.True(t, renews)
	for _, age := range []time.Duration{renewAfter, oldAfter, staleAfter - 1} {
		use, renews = p.use(7, 1, begun.Add(age))
		require.Equal(t, one, use, "the mark is being asked for")
		require.False(t, renews)
	}
	use, renews = p.use(7, 1, begun.Add(staleAfter))
	require.Nil(t, use, "that takes too long")
	require.False(t, renews)
}

// A place is young, if it serves a read at all, until its time has come; what comes then is for use.
func TestPlacesYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &places{}
		require.Nil(t, p.young(7, 1), "nothing is known")
		time.Sleep(time.Millisecond)
		one := &place{at: 50, mark: mirror.Mark{Source: 7, Revision: 100}, asked: time.Now().Add(-time.Millisecond)}
		p.learn(one)
		require.Equal(t, one, p.young(7, 100))
		require.Nil(t, p.young(7, 101), "the client has seen more")
		require.Nil(t, p.young(8, 1), "of another home")
		time.Sleep(renewAfter - 2*time.Millisecond)
		synctest.Wait()
		require.Equal(t, one, p.young(7, 1))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Nil(t, p.young(7, 1), "the mark was asked for renewAfter ago")
		use, renews := p.use(7, 1, time.Now())
		require.Equal(t, one, use)
		require.True(t, renews)
	})
}

// A view that has failed isn't asked for a while, and then it is, with no trace of the time.
func TestViewReachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{}
		require.False(t, v.reachable(), "its home isn't known yet")
		v.home.Store(7)
		require.True(t, v.reachable())
		_ = v.failed(context.Canceled)
		require.True(t, v.reachable(), "its caller has given up")
		_ = v.failed(context.DeadlineExceeded)
		require.False(t, v.reachable())
		time.Sleep(backAfter - 1)
		require.False(t, v.reachable())
		time.Sleep(time.Nanosecond)
		require.True(t, v.reachable())
		require.Zero(t, v.away.Load())
	})
}

// A clock that is set back doesn't put the time off: it is one of the monotonic clock.
func TestViewAwayBySetClock(t *testing.T) {
	v := &view{}
	_ = v.failed(context.DeadlineExceeded)
	require.Contains(t, v.away.Load().String(), " m=+")
}

// A mirror lags until its mark is at the floor; meanwhile the mark is asked for, by one read at a time.
func TestPlacesLag(t *testing.T) {
	begun := time.Unix(1000, 0)
	p := &places{}
	lags := func(floor int64, age time.Duration) [2]bool {
		lags, renews := p.lags(floor, begun.Add(age))
		return [2]bool{lags, renews}
	}
	require.Equal(t, [2]bool{true, false}, lags(1, 0), "nothing is known")
	p.learn(&place{mark: mirror.Mark{Revision: 100}, asked: begun})
	require.Equal(t, [2]bool{false, false}, lags(100, time.Hour))
	require.Equal(t, [2]bool{true, false}, lags(101, renewAfter-1))
	require.Equal(t, [2]bool{true, true}, lags(101, renewAfter))
	require.Equal(t, [2]bool{true, false}, lags(101, renewAfter), "that is under way")
}

// Answers that come late don't take a place back, but for one of another connection.
func TestPlacesLearn(t *testing.T) {
	a, b := connection{stream: 1}, connection{stream: 2}
	p := &places{}
	newest := &place{at: 60, over: a}
	p.learn(newest)
	p.learn(&place{at: 50, over: a})
	require.Equal(t, newest, p.known.Load())
	restored := &place{at: 10, over: b}
	p.learn(restored)
	require.Equal(t, restored, p.known.Load())
}

// An answer shows a place if it was read at its revision, or if its one key is older, and if it has come
// over the place's connection.
func TestPlaceShows(t *testing.T) {
	over := connection{local: &net.TCPAddr{Port: 1}}
	p := &place{at: 50, over: over}
	kv := func(mod int64) *pb.RangeResponse {
		return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{ModRevision: mod}}}
	}
	one, all := p.ask(&pb.RangeRequest{Key: []byte("a")}), p.ask(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")})
	require.Zero(t, one.Revision)
	require.EqualValues(t, 50, all.Revision)
	require.EqualValues(t, 50, p.ask(&pb.RangeRequest{Key: []byte("a"), CountOnly: true}).Revision, "a count has no revisions")
	for _, c := range []struct {
		why    string
		answer *pb.RangeResponse
		q      *pb.RangeRequest
		over   connection
		want   bool
	}{
		{"unchanged since", kv(50), one, over, true},
		{"changed since", kv(51), one, over, false},
		{"missing, and perhaps deleted since", &pb.RangeResponse{}, one, over, false},
		{"a range at the revision", &pb.RangeResponse{}, all, over, true},
		{"of another process, whose history may be another", kv(50), one, connection{local: &net.TCPAddr{Port: 1}}, false},
		{"of a connection that can't be told from others", kv(50), one, connection{}, false},
	} {
		require.Equal(t, c.want, p.isOver(c.over) && p.shows(c.answer, c.q.Revision), c.why)
	}
	require.False(t, (&place{at: 50}).isOver(connection{}), "neither is known")
	require.Nil(t, identity(&net.IPAddr{}))
}

// Of keys alone a mirror shows no more than home: neither values nor leases.
func TestKeysAloneOfAMirror(t *testing.T) {
	there := func() *pb.RangeResponse {
		kv := &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 3, ModRevision: 5, Version: 2, Lease: 7}
		kv.Value = mirrored.Stamped(kv)
		return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}}
	}
	home := &mvccpb.KeyValue{Key: []byte("k"), CreateRevision: 3, ModRevision: 5, Version: 2}
	require.EqualExportedValues(t, home, atHome(there(), true, &mirror.Mark{}).Kvs[0])
	home.Value, home.Lease = []byte("v"), 7
	require.EqualExportedValues(t, home, atHome(there(), false, &mirror.Mark{}).Kvs[0])
}
