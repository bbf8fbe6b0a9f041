package relay

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"pgregory.net/rapid"
)

// rig is a hub, the cluster behind it and clients in front.
type rig struct {
	*rapid.T
	h       *history
	hub     *Hub
	member  *member // nil: no connection
	clients []*client
	behind  []*behind
	copy    *followed
}

// followed checks what a follower gets: each revision of its range, once, in order, and never more than there is.
type followed struct {
	*rig
	key     spanKey
	at      int64
	gaps    int
	wanted  int64
	stopped bool
}

func (f *followed) Begin(rev int64) {
	require.GreaterOrEqual(f, rev, f.at)
	f.at = rev
	f.gaps++
}

func (f *followed) Take(header *pb.ResponseHeader, events []Event) {
	require.LessOrEqual(f, header.Revision, f.h.rev)
	require.GreaterOrEqual(f, header.Revision, f.at)
	for ; f.at < header.Revision; f.at++ {
		for _, key := range f.h.of(f.at+1, f.key) {
			require.NotEmpty(f, events, "progress at %d before an event at %d", header.Revision, f.at+1)
			raw, _ := events[0].KeyValue()
			kv, err := kvwire.Parse(raw)
			require.NoError(f, err)
			require.Equal(f, key, string(kv.Key()))
			require.Equal(f, f.at+1, events[0].Revision())
			events = events[1:]
		}
	}
	require.Empty(f, events)
}

func (f *followed) End(string) { f.stopped = true }

// behind is a watcher that catches up.
type behind struct {
	w      *Watcher
	turn   int
	member *member
}

// client checks what a local client gets.
type client struct {
	*rig
	st       *Stream
	openings []*open
	watchers map[int64]*open
	asked    int // requests for progress that may still be answered: several may be by one
	told     int64
	partial  map[int64][]*mvccpb.Event
}

type open struct {
	o         *Opening
	key       spanKey
	start     int64
	through   int64 // everything at or below has come
	answered  bool
	periodic  bool
	requested int64 // the cluster's revision when it was asked for
}

func newRig(t *rapid.T) *rig {
	r := &rig{T: t, h: &history{keys: map[int64][]string{}, rev: 1}}
	r.hub = New(Options{Entries: 6, Bytes: 2000, Total: 3000, Fragment: overhead + 40}, func() {})
	r.follow()
	return r
}

func (r *rig) client() *client {
	if len(r.clients) == 0 || len(r.clients) < 3 && rapid.IntRange(0, 9).Draw(r.T, "new client") == 0 {
		c := &client{rig: r, watchers: map[int64]*open{}, partial: map[int64][]*mvccpb.Event{}}
		c.st = r.hub.Open(func() {})
		r.clients = append(r.clients, c)
		return c
	}
	return rapid.SampledFrom(r.clients).Draw(r.T, "client")
}

func (c *client) create() {
	k := rapid.SampledFrom([]spanKey{{key: "a"}, {key: "b"}, {key: "a", end: "d"}}).Draw(c.T, "range")
	start := max(0, c.h.rev+int64(rapid.IntRange(-12, 4).Draw(c.T, "start")))
	if rapid.Bool().Draw(c.T, "now") {
		start = 0
	}
	req := k.request()
	req.StartRevision, req.ProgressNotify, req.Fragment = start, rapid.Bool().Draw(c.T, "periodic"), rapid.Bool().Draw(c.T, "fragment")
	c.openings = append(c.openings, &open{o: c.st.Create(req), key: k, start: start, requested: c.h.rev, periodic: req.ProgressNotify})
}

// answer has the question of one request answered.
func (c *client) answer() {
	for _, o := range c.openings {
		if !o.answered && (o == c.openings[0] || rapid.Bool().Draw(c.T, "this")) {
			o.answered = true
			c.hubAnswers(o)
			return
		}
	}
}

func (c *client) hubAnswers(o *open) {
	o.requested = c.h.rev
	o.o.Answered(c.h.rev, o.start > 0 && o.start < c.h.compact)
}

// read takes a response; false for none.
func (c *client) read() bool {
	b, w, err := c.st.Next()
	require.NoError(c, err)
	if w != nil {
		c.behind = append(c.behind, &behind{w: w, turn: w.CatchUp(func() {})})
		return true
	}
	if b == nil {
		return false
	}
	r := new(pb.WatchResponse)
	require.NoError(c, proto.Unmarshal(b, r))
	c.check(r)
	return true
}

func (c *client) check(r *pb.WatchResponse) {
	switch w := c.watchers[r.WatchId]; {
	case r.Created:
		o := c.openings[0]
		c.openings = c.openings[1:]
		require.False(c, r.Canceled, r)
		require.Equal(c, o.requested, r.Header.Revision)
		if o.start == 0 {
			o.start = r.Header.Revision + 1
		}
		o.through = o.start - 1
		c.watchers[r.WatchId] = o
	case r.Canceled:
		require.NotNil(c, w)
		delete(c.watchers, r.WatchId)
		if r.CompactRevision > 0 {
			require.Less(c, w.through+1, c.h.compact)
		}
	case r.WatchId == everyWatcher:
		require.Positive(c, c.asked, "progress that was not asked for")
		c.asked--
		require.GreaterOrEqual(c, r.Header.Revision, c.told)
		c.told = r.Header.Revision
		for _, w := range c.watchers {
			w.progress(c, r.Header.Revision)
		}
	case len(r.Events) == 0:
		require.NotNil(c, w)
		require.True(c, w.periodic)
		w.progress(c, r.Header.Revision)
	default:
		require.NotNil(c, w)
		c.partial[r.WatchId] = append(c.partial[r.WatchId], r.Events...)
		if !r.Fragment {
			w.events(c, c.partial[r.WatchId])
			delete(c.partial, r.WatchId)
		}
		require.GreaterOrEqual(c, r.Header.Revision, r.Events[len(r.Events)-1].Kv.ModRevision)
	}
}

// events checks whole revisions: all of each, once, in order.
func (w *open) events(c *client, events []*mvccpb.Event) {
	for len(events) > 0 {
		for w.through++; len(c.h.of(w.through, w.key)) == 0; w.through++ {
			require.Less(c, w.through, events[0].Kv.ModRevision)
		}
		for _, key := range c.h.of(w.through, w.key) {
			require.NotEmpty(c, events, "a part of revision %d", w.through)
			require.Equal(c, w.through, events[0].Kv.ModRevision)
			require.Equal(c, key, string(events[0].Kv.Key))
			events = events[1:]
		}
	}
}

func (w *open) progress(c *client, rev int64) {
	for at := w.through + 1; at <= rev; at++ {
		require.Empty(c, c.h.of(at, w.key), "progress at %d before an event at %d", rev, at)
	}
	w.through = max(w.through, rev)
}

// feed moves a watcher that catches up by one response; false if there was nothing to do.
func (r *rig) feed(i int) bool {
	b := r.behind[i]
	if !b.w.Behind(b.turn) {
		r.behind = slices.Delete(r.behind, i, i+1)
		return true
	}
	if !b.w.Hungry() {
		return false
	}
	if b.member == nil {
		b.member = &member{h: r.h, rev: r.h.rev}
		b.member.take(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: b.w.Request()}})
	}
	if len(b.member.out) == 0 {
		b.member.rev = r.h.rev
		b.member.progress = true
		b.member.step(rapid.IntRange(1, 3).Draw(r.T, "revisions"), rapid.IntRange(1, 3).Draw(r.T, "fragment"))
	}
	resp := b.member.response(r)
	if resp == nil {
		return false
	}
	require.False(r, b.w.Feed(b.turn, resp))
	return true
}

func (r *rig) exchange() bool {
	if r.member == nil {
		return false
	}
	done := false
	for _, req := range r.hub.Take() {
		r.member.take(req)
		done = true
	}
	if resp := r.member.response(r); resp != nil {
		r.hub.Receive(resp)
		done = true
	}
	return done
}

func (r *rig) step() {
	switch rapid.IntRange(0, 14).Draw(r.T, "step") {
	case 0, 1:
		r.h.put(rapid.SampledFrom([][]string{{"a"}, {"b"}, {"c"}, {"a", "b"}, {"a", "b", "c"}, {"z"}}).Draw(r.T, "keys")...)
	case 2:
		if rapid.IntRange(0, 5).Draw(r.T, "compact") == 0 {
			r.h.compact = max(r.h.compact, r.h.rev-int64(rapid.IntRange(0, 8).Draw(r.T, "back")))
		}
	case 3:
		if r.member == nil || rapid.IntRange(0, 4).Draw(r.T, "break") == 0 {
			r.hub.Disconnected()
			r.member = &member{h: r.h, rev: max(1, r.h.rev-int64(rapid.IntRange(0, 3).Draw(r.T, "lag")))}
			r.hub.Connected()
		}
	case 4, 5:
		if r.member != nil {
			r.member.rev = max(r.member.rev, r.h.rev-int64(rapid.IntRange(0, 3).Draw(r.T, "lag")))
			r.member.step(rapid.IntRange(1, 3).Draw(r.T, "revisions"), rapid.IntRange(1, 3).Draw(r.T, "fragment"))
		}
	case 6:
		if r.member != nil {
			r.member.tick()
		}
	case 7:
		if len(r.behind) > 0 {
			i := rapid.IntRange(0, len(r.behind)-1).Draw(r.T, "behind")
			if rapid.IntRange(0, 5).Draw(r.T, "break") == 0 && r.behind[i].w.Hungry() {
				r.behind[i].member = nil
			}
			r.feed(i)
		}
	case 8:
		r.client().create()
	case 9:
		r.client().answer()
	case 10:
		c := r.client()
		if rapid.Bool().Draw(r.T, "cancel") {
			c.st.Cancel(int64(rapid.IntRange(0, 5).Draw(r.T, "id")))
			return
		}
		c.asked++
		c.st.Progress()
	case 11:
		for range rapid.IntRange(1, 5).Draw(r.T, "reads") {
			r.client().read()
		}
	case 12:
		for range 3 {
			r.exchange()
		}
	case 13:
		r.copy.wanted = r.h.rev
		r.hub.Want(r.h.rev)
	case 14:
		if rapid.IntRange(0, 3).Draw(r.T, "unfollow") == 0 {
			r.hub.Unfollow([]byte("a"), []byte("c"))
			r.follow()
		}
	}
}

func (r *rig) follow() {
	r.copy = &followed{rig: r, key: spanKey{key: "a", end: "c"}}
	r.hub.Follow([]byte("a"), []byte("c"), r.copy)
}

// settle lets everything happen that can.
func (r *rig) settle() {
	r.hub.Disconnected()
	r.member = &member{h: r.h, rev: r.h.rev}
	r.hub.Connected()
	for idle, rounds := 0, 0; idle < 20; idle, rounds = idle+1, rounds+1 {
		require.Less(r, rounds, 10000, "it never ends")
		r.hub.Tick()
		r.member.step(2, 2)
		for _, c := range r.clients {
			for _, o := range c.openings {
				if !o.answered {
					o.answered = true
					c.hubAnswers(o)
				}
			}
			for n := 0; c.read(); n++ {
				require.Less(r, n, 10000, "it never ends")
				idle = 0
			}
		}
		for i := len(r.behind) - 1; i >= 0; i-- {
			if r.feed(i) {
				idle = 0
			}
		}
		for r.exchange() {
		}
	}
}

// TestModel: whatever happens, each watcher of each client gets all of its events, once, in order, and
// progress only when it is true.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			r.step()
		}
		r.settle()
		for _, c := range r.clients {
			c.st.Progress()
			c.asked++
		}
		future := map[*client]bool{}
		for _, c := range r.clients {
			for _, w := range c.watchers {
				future[c] = future[c] || w.start > r.h.rev+1
			}
		}
		r.settle()
		for _, c := range r.clients {
			require.Empty(t, c.openings)
			for id, w := range c.watchers {
				for at := w.through + 1; at <= r.h.rev; at++ {
					require.Empty(t, r.h.of(at, w.key), "watcher %d lacks revision %d", id, at)
				}
			}
			if len(c.watchers) > 0 && !future[c] {
				require.Equal(t, r.h.rev, c.told, "progress was asked for")
			}
			c.st.Close()
		}
		r.settle()
		require.GreaterOrEqual(t, r.copy.at, r.copy.wanted, "a follower lacks what is wanted")
		require.False(t, r.copy.stopped)
		require.Len(t, r.hub.spans, 1, "a follower stays")
		r.hub.Fail(ErrCluster)
		r.settle()
		require.True(t, r.copy.stopped)
		require.Empty(t, r.hub.spans)
		require.Empty(t, r.hub.streams)
		require.Empty(t, r.member.watchers, "nothing is watched any more")
	})
}
