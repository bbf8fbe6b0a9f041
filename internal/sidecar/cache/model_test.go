package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

// cluster is a history of states, and the events between them.
type cluster struct {
	states  []map[string]*mvccpb.KeyValue // by revision
	events  [][]*mvccpb.Event
	compact int64
}

func newCluster() *cluster {
	return &cluster{states: []map[string]*mvccpb.KeyValue{nil, {}}, events: make([][]*mvccpb.Event, 2)}
}

func (c *cluster) rev() int64 { return int64(len(c.states) - 1) }

func (c *cluster) write(t *rapid.T) {
	next, rev := map[string]*mvccpb.KeyValue{}, c.rev()+1
	for k, kv := range c.states[rev-1] {
		next[k] = kv
	}
	var events []*mvccpb.Event
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 3, rapid.ID[string]).Draw(t, "keys") {
		if _, has := next[k]; has && rapid.Bool().Draw(t, "delete") {
			delete(next, k)
			events = append(events, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(k), ModRevision: rev}})
			continue
		}
		kv := &mvccpb.KeyValue{Key: []byte(k), ModRevision: rev, CreateRevision: rev, Version: 1,
			Value: []byte(strings.Repeat("v", rapid.IntRange(0, 30).Draw(t, "size")))}
		if old := next[k]; old != nil {
			kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		}
		next[k] = kv
		events = append(events, &mvccpb.Event{Kv: kv})
	}
	c.states, c.events = append(c.states, next), append(c.events, events)
}

var (
	keys = []string{"a", "p/", "p/a", "p/a/b", "p/a/c", "p/ab", "p/b", "p/c", "p0", "q"}
	ends = []string{"", "\x00", "p/", "p/a/", "p/a0", "p/b", "p/z", "p0", "q"}
)

func within(key, from, end string) bool {
	switch end {
	case "":
		return key == from
	case "\x00":
		return key >= from
	}
	return key >= from && key < end
}

// answer is what etcd answers.
func (c *cluster) answer(r *pb.RangeRequest, rev int64) *pb.RangeResponse {
	out := &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 7, MemberId: 8, RaftTerm: 9, Revision: rev}}
	var kvs []*mvccpb.KeyValue
	for k, kv := range c.states[rev] {
		if within(k, string(r.Key), string(r.RangeEnd)) {
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
	out.Count = int64(len(kvs))
	if r.CountOnly {
		return out
	}
	if r.SortOrder == pb.RangeRequest_DESCEND {
		slices.Reverse(kvs)
	}
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, out.More = kvs[:r.Limit], true
	}
	for _, kv := range kvs {
		if r.KeysOnly {
			kv = proto.CloneOf(kv)
			kv.Value = nil
		}
		out.Kvs = append(out.Kvs, kv)
	}
	return out
}

// rig is a prefix, the hub that it follows, and a stream to a member.
type rig struct {
	*rapid.T
	c      *cluster
	hub    *relay.Hub
	p      *Prefix
	budget *Budget
	at     int64 // the member's revision
	next   int64 // of the watch; 0: none
	id     int64
	asked  bool // for progress
	seen   int64
	shown  int
}

func (r *rig) say(m *pb.WatchResponse) {
	m.Header = &pb.ResponseHeader{ClusterId: 7, MemberId: 8, RaftTerm: 9, Revision: r.at}
	b, err := proto.Marshal(m)
	require.NoError(r, err)
	resp, err := relay.Read(b)
	require.NoError(r, err)
	r.hub.Receive(resp)
}

func (r *rig) connect() {
	r.hub.Disconnected()
	r.next = 0
	r.at = max(1, r.c.rev()-int64(rapid.IntRange(0, 3).Draw(r.T, "lag")))
	r.hub.Connected()
}

// exchange has the member take requests, and send what is there.
func (r *rig) exchange() {
	for _, q := range r.hub.Take() {
		switch u := q.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			r.id, r.next = u.CreateRequest.WatchId, u.CreateRequest.StartRevision
			if r.next == 0 {
				r.next = r.at + 1
			}
			r.say(&pb.WatchResponse{WatchId: r.id, Created: true})
		case *pb.WatchRequest_ProgressRequest:
			r.asked = true
		}
	}
	if r.next == 0 {
		return
	}
	if r.next <= r.at && r.next < r.c.compact {
		r.next = 0
		r.say(&pb.WatchResponse{WatchId: r.id, Canceled: true, CompactRevision: r.c.compact})
		return
	}
	for ; r.next <= r.at; r.next++ {
		m := &pb.WatchResponse{WatchId: r.id}
		for _, e := range r.c.events[r.next] {
			if within(string(e.Kv.Key), "p/", "p0") {
				m.Events = append(m.Events, e)
			}
		}
		if len(m.Events) > 0 {
			r.say(m)
		}
	}
	if r.asked {
		r.asked = false
		r.say(&pb.WatchResponse{WatchId: -1})
	}
}

// load reads a page, and has it arrive after some more has happened.
func (r *rig) load() bool {
	page, ok := r.p.Wants()
	if !ok {
		return false
	}
	rev := page.Revision
	if rev == 0 {
		rev = r.c.rev()
	}
	if rev < r.c.compact {
		r.p.Reload()
		return true
	}
	resp := r.c.answer(&pb.RangeRequest{Key: page.Key, RangeEnd: []byte("p0"), Limit: int64(rapid.IntRange(1, 3).Draw(r.T, "page"))}, rev)
	if page.Revision != 0 {
		resp.Header.Revision = r.c.rev() // as of etcd's answers at a revision
	}
	for range rapid.IntRange(0, 2).Draw(r.T, "meanwhile") {
		r.step(false)
	}
	require.NoError(r, r.p.Load(page, resp))
	return true
}

func (r *rig) step(load bool) {
	switch kind := rapid.IntRange(0, 9).Draw(r.T, "step"); {
	case kind < 3:
		r.c.write(r.T)
	case kind < 5:
		r.at = max(r.at, r.c.rev()-int64(rapid.IntRange(0, 3).Draw(r.T, "lag")))
		r.exchange()
	case kind == 5 && rapid.IntRange(0, 3).Draw(r.T, "compact") == 0:
		r.c.compact = max(r.c.compact, r.c.rev()-int64(rapid.IntRange(0, 5).Draw(r.T, "back")))
	case kind == 6 && rapid.IntRange(0, 2).Draw(r.T, "break") == 0:
		r.connect()
	case kind == 7:
		r.hub.Want(r.c.rev())
	case load:
		r.load()
	}
	r.check()
}

// check compares an answer of the view, if there is one, with the state at its revision.
func (r *rig) check() {
	require.LessOrEqual(r, r.budget.Used(), r.budget.Limit)
	require.GreaterOrEqual(r, r.budget.Used(), int64(0))
	v := r.p.View()
	if v == nil {
		require.False(r, r.p.TooLarge() && r.budget.Used() > 0, "what is too large takes no memory")
		return
	}
	r.shown++
	require.GreaterOrEqual(r, v.Revision(), r.seen, "it goes back")
	r.seen = v.Revision()
	q := &pb.RangeRequest{
		Key: []byte(rapid.SampledFrom(keys).Draw(r.T, "key")), RangeEnd: []byte(rapid.SampledFrom(ends).Draw(r.T, "end")),
		Limit: int64(rapid.IntRange(0, 3).Draw(r.T, "limit")), SortOrder: pb.RangeRequest_SortOrder(rapid.IntRange(0, 2).Draw(r.T, "order")),
		KeysOnly: rapid.Bool().Draw(r.T, "keys only"), CountOnly: rapid.Bool().Draw(r.T, "count only"),
	}
	if !r.p.Covers(q) {
		from, end := string(q.Key), string(q.RangeEnd)
		inside := from >= "p/" && from < "p0" && (end == "" || end > from && end <= "p0" && end != "\x00")
		require.False(r, inside, "[%q, %q) is not answered", from, end)
		return
	}
	got := new(pb.RangeResponse)
	require.NoError(r, proto.Unmarshal(v.Answer(q), got))
	want := r.c.answer(q, v.Revision())
	require.True(r, proto.Equal(want, got), "%v\nwant %v\ngot  %v", q, want, got)
}

// TestModel: whatever happens, a view answers as the cluster at its revision, revisions go up, memory is
// bounded, and in the end everything is there if it fits.
func TestModel(t *testing.T) {
	views := 0
	rapid.Check(t, func(t *rapid.T) {
		r := &rig{T: t, c: newCluster(), budget: &Budget{Limit: int64(rapid.SampledFrom([]int{900, 3000, 1 << 20}).Draw(t, "budget"))}}
		r.hub = relay.New(relay.Options{Entries: 4, Bytes: 1 << 10, Total: 1 << 10, Fragment: 1 << 20}, func() {})
		r.p = New([]byte("p/"), []byte("p0"), r.budget)
		r.hub.Follow([]byte("p/"), []byte("p0"), r.p)
		r.connect()
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			r.step(true)
		}
		r.connect()
		r.at = r.c.rev()
		for range 3 {
			r.hub.Tick()
			r.hub.Want(r.at)
			r.exchange()
			for n := 0; r.load(); n++ {
				require.Less(t, n, 1000, "it never ends")
			}
			r.at = r.c.rev()
		}
		r.hub.Tick()
		r.hub.Want(r.at)
		r.exchange()
		r.check()
		if !r.p.TooLarge() {
			require.NotNil(t, r.p.View())
			require.Equal(t, r.c.rev(), r.p.View().Revision(), "what is wanted comes")
			views += r.shown
		}
		r.hub.Unfollow(r.p.Range())
		require.False(t, r.hub.Wanted())
		r.p.End("")
		require.Nil(t, r.p.View())
		require.Zero(t, r.budget.Used(), "all memory is given back")
	})
	require.Positive(t, views)
}

// TestAnswerable: these are for a member.
func TestAnswerable(t *testing.T) {
	p := New([]byte("p/"), []byte("p0"), &Budget{})
	for _, r := range []*pb.RangeRequest{
		{Key: []byte("p/a"), Revision: 1}, {Key: []byte("p/a"), Limit: -1}, {Key: []byte("p/a"), SortOrder: 7},
		{Key: []byte("p/a"), SortTarget: pb.RangeRequest_MOD}, // in ascending order, as etcd has it
		{Key: []byte("p/a"), SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_MOD},
		{Key: []byte("p/a"), MinModRevision: 1}, {Key: []byte("p/a"), MaxCreateRevision: 1}, {Key: []byte("p/a"), MinCreateRevision: -1},
		{Key: []byte("p/a"), MaxModRevision: 3}, {}, {Key: []byte("p/b"), RangeEnd: []byte("p/a")}, {Key: []byte("p/b"), RangeEnd: []byte("p/b")},
		{Key: []byte("p/b"), RangeEnd: []byte{0}}, {Key: []byte{0}, RangeEnd: []byte{0}}, {Key: []byte("p")}, {Key: []byte("p0")},
	} {
		require.False(t, p.Covers(r), fmt.Sprint(r))
	}
	all := New([]byte{0}, []byte{0}, &Budget{})
	require.True(t, all.Covers(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}))
}

func BenchmarkGet(b *testing.B) { benchmark(b, &pb.RangeRequest{Key: []byte("p/05000")}) }

func BenchmarkList(b *testing.B) {
	benchmark(b, &pb.RangeRequest{Key: []byte("p/"), RangeEnd: []byte("p0"), Limit: 100})
}

func benchmark(b *testing.B, r *pb.RangeRequest) {
	p := New([]byte("p/"), []byte("p0"), &Budget{Limit: 1 << 30})
	p.Begin(1)
	page, _ := p.Wants()
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 2}}
	for i := range 10_000 {
		resp.Kvs = append(resp.Kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "p/%05d", i), Value: make([]byte, 100), ModRevision: 2, CreateRevision: 2, Version: 1})
	}
	require.NoError(b, p.Load(page, resp))
	b.ReportAllocs()
	for b.Loop() {
		p.View().Answer(r)
	}
}
