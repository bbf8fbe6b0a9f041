package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

func TestCovers(t *testing.T) {
	whole := spanKey{key: "b", end: "c"}
	for _, in := range []spanKey{{key: "b"}, {key: "bz"}, {key: "b", end: "c"}, {key: "b1", end: "b2"}} {
		require.True(t, whole.covers(in), in)
		require.True(t, spanKey{key: "b", end: "\x00"}.covers(in), in)
	}
	for _, out := range []spanKey{{key: "a"}, {key: "c"}, {key: "a", end: "bz"}, {key: "b", end: "c\x00"}, {key: "b", end: "\x00"}} {
		require.False(t, whole.covers(out), out)
	}
	require.True(t, spanKey{key: "b"}.covers(spanKey{key: "b"}))
	require.False(t, spanKey{key: "b"}.covers(spanKey{key: "b", end: "c"}))
	require.True(t, whole.has("b") && whole.has("bz") && !whole.has("c") && !whole.has("a"))
	require.True(t, spanKey{key: "b"}.has("b") && !spanKey{key: "b"}.has("b1"))
	require.True(t, spanKey{key: "b", end: "\x00"}.has("z"))
}

// TestParts: watches within a followed range have no watcher upstream, unless they want what it doesn't
// get; filters hold for them, too.
func TestParts(t *testing.T) {
	h := &history{keys: map[int64][]string{}, rev: 1}
	hub := New(Options{Entries: 10, Bytes: 1 << 20, Total: 1 << 20, Fragment: 1 << 20}, func() {})
	hub.Follow([]byte("a"), []byte("c"), &follower{t, new(strings.Builder)})
	m := &member{h: h, rev: 1}
	hub.Connected()
	exchange := func() {
		for _, r := range hub.Take() {
			m.take(r)
		}
		m.rev = h.rev
		m.step(10, 10)
		for r := m.response(t); r != nil; r = m.response(t) {
			hub.Receive(r)
		}
	}
	exchange()
	st := hub.Open(func() {})
	upstream := func(r *pb.WatchCreateRequest) int {
		st.Create(r).Answered(h.rev, false)
		exchange()
		return hub.Stats().Upstream
	}
	require.Equal(t, 1, upstream(&pb.WatchCreateRequest{Key: []byte("a")}))
	require.Equal(t, 1, upstream(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("b")}))
	require.Equal(t, 1, upstream(&pb.WatchCreateRequest{Key: []byte("b"), Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}}))
	require.Equal(t, 2, upstream(&pb.WatchCreateRequest{Key: []byte("a"), PrevKv: true}))
	require.Equal(t, 3, upstream(&pb.WatchCreateRequest{Key: []byte("a"), ProgressNotify: true}))
	require.Equal(t, 4, upstream(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("d")}))
	h.put("a", "b")
	exchange()
	got := map[int64][]string{}
	for b, _, err := st.Next(); b != nil; b, _, err = st.Next() {
		require.NoError(t, err)
		r := new(pb.WatchResponse)
		require.NoError(t, proto.Unmarshal(b, r))
		for _, e := range r.Events {
			require.Equal(t, mvccpb.Event_PUT, e.Type)
			got[r.WatchId] = append(got[r.WatchId], string(e.Kv.Key))
		}
	}
	require.Equal(t, map[int64][]string{0: {"a"}, 1: {"a"}, 3: {"a"}, 4: {"a"}, 5: {"a", "b"}}, got)
	st.Close()
	require.Equal(t, 1, hub.Stats().Upstream)
	require.Empty(t, hub.followed[0].parts.keys)
	require.Empty(t, hub.followed[0].parts.ranges)
}

// TestRangesOfLongKeys: those that a member may not take are not sent to it, since its stream would end with them, for all.
func TestRangesOfLongKeys(t *testing.T) {
	hub := New(Options{Entries: 10, Bytes: 1 << 20, Total: 1 << 20, Fragment: 1 << 20}, func() {})
	hub.Connected()
	st := hub.Open(func() {})
	long := strings.Repeat("x", 300<<10)
	for _, r := range []*pb.WatchCreateRequest{{Key: []byte(long + long)}, {Key: []byte(long), RangeEnd: []byte(long + "y")}} {
		st.Create(r).Answered(1, false)
		b, _, err := st.Next()
		require.NoError(t, err)
		got := new(pb.WatchResponse)
		require.NoError(t, proto.Unmarshal(b, got))
		require.True(t, got.Created && got.Canceled)
		require.Equal(t, tooLong, got.CancelReason)
		require.Empty(t, hub.Take())
	}
	st.Create(&pb.WatchCreateRequest{Key: []byte(long)})
	require.Len(t, hub.Take(), 1)
}
