package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// story is a hub, a member, and local streams by name.
type story struct {
	*testing.T
	h       *history
	hub     *Hub
	member  *member
	streams map[string]*Stream
	open    map[string][]*Opening
	behind  *behind

	follower *follower
}

// follower writes what it gets.
type follower struct {
	*testing.T
	b *strings.Builder
}

func (f *follower) Begin(rev int64) { fmt.Fprintf(f.b, "follower: begins after %d\n", rev) }

func (f *follower) Take(header *pb.ResponseHeader, events []Event) {
	fmt.Fprintf(f.b, "follower: through %d", header.Revision)
	for _, e := range events {
		raw, deleted := e.KeyValue()
		kv, err := kvwire.Parse(raw)
		require.NoError(f, err)
		require.False(f, deleted)
		fmt.Fprintf(f.b, " %s@%d", kv.Key(), e.Revision())
	}
	f.b.WriteString("\n")
}

func (f *follower) End(reason string) { fmt.Fprintln(f.b, "follower: ends:", reason) }

// TestStories runs testdata/stories:
//
//	put KEY...                     the next revision
//	compact rev=N
//	connect                        the hub's stream to a member begins (again)
//	member                         the requests to it reach the member, and its answers the hub
//	tick                           the member tells periodic progress
//	refuse reason=TEXT             the member refuses what was asked for first
//	create stream=S key=K [end=K] [rev=N] [id=N] [periodic]
//	answer stream=S                its creations get the cluster's revision
//	cancel stream=S id=N
//	progress stream=S
//	read stream=S                  what the client gets
//	feed                           the watcher that catches up gets what it lacks
//	follow key=K end=K             what its follower gets is shown from then on
//	want rev=N                     of all followers
//	other                          the members are those of another cluster
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{T: t, h: &history{keys: map[int64][]string{}, rev: 1}, streams: map[string]*Stream{}, open: map[string][]*Opening{}}
		s.hub = New(Options{Entries: 3, Bytes: 1 << 20, Total: 1 << 20, Fragment: 1 << 20, Watchers: 4}, func() {})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.T = t
			return s.run(d)
		})
	})
}

func (s *story) run(d *datadriven.TestData) string {
	var b strings.Builder
	var name, reason string
	var id, rev int64
	d.MaybeScanArgs(s.T, "stream", &name)
	d.MaybeScanArgs(s.T, "id", &id)
	d.MaybeScanArgs(s.T, "rev", &rev)
	if s.follower != nil {
		s.follower.b = &b
	}
	st := s.streams[name]
	if st == nil && name != "" {
		st = s.hub.Open(func() {})
		s.streams[name] = st
	}
	switch d.Cmd {
	case "put":
		var keys []string
		for _, a := range d.CmdArgs {
			keys = append(keys, a.Key)
		}
		s.h.put(keys...)
	case "compact":
		s.h.compact = rev
	case "connect":
		s.hub.Disconnected()
		s.member = &member{h: s.h, rev: s.h.rev}
		s.hub.Connected()
	case "member":
		s.exchange(&b)
	case "tick":
		s.member.tick()
	case "refuse":
		d.ScanArgs(s.T, "reason", &reason)
		s.hub.Take()
		s.hub.Receive(&Response{ID: everyWatcher, Created: true, Canceled: true, Reason: reason})
	case "create":
		r := &pb.WatchCreateRequest{WatchId: id, StartRevision: rev, ProgressNotify: d.HasArg("periodic")}
		var key, end string
		d.ScanArgs(s.T, "key", &key)
		d.MaybeScanArgs(s.T, "end", &end)
		r.Key, r.RangeEnd = []byte(key), []byte(end)
		s.open[name] = append(s.open[name], st.Create(r))
	case "answer":
		for _, o := range s.open[name] {
			o.Answered(s.h.rev, o.start > 0 && o.start < s.h.compact)
		}
		s.open[name] = nil
	case "cancel":
		st.Cancel(id)
	case "progress":
		st.Progress()
	case "read":
		s.read(&b, st)
	case "follow":
		var key, end string
		d.ScanArgs(s.T, "key", &key)
		d.MaybeScanArgs(s.T, "end", &end)
		s.follower = &follower{T: s.T, b: &b}
		s.hub.Follow([]byte(key), []byte(end), s.follower)
	case "want":
		s.hub.Want(rev)
	case "other":
		s.member.cluster = 8
	case "feed":
		s.feed()
	default:
		d.Fatalf(s.T, "unknown command %s", d.Cmd)
	}
	return b.String()
}

func (s *story) exchange(b *strings.Builder) {
	s.member.rev = s.h.rev
	for range 3 { // what comes may lead to another request
		for _, req := range s.hub.Take() {
			ask(b, req)
			s.member.take(req)
		}
		s.member.step(10, 10)
		for r := s.member.response(s); r != nil; r = s.member.response(s) {
			s.hub.Receive(r)
		}
	}
}

func (s *story) read(b *strings.Builder, st *Stream) {
	for {
		message, w, err := st.Next()
		switch {
		case err != nil:
			fmt.Fprintln(b, err)
			return
		case w != nil:
			s.behind = &behind{w: w, turn: w.CatchUp(func() {}), member: &member{h: s.h}}
			fmt.Fprintf(b, "watcher %d catches up from revision %d\n", w.id, w.next)
		case message == nil:
			return
		default:
			r := new(pb.WatchResponse)
			require.NoError(s, proto.Unmarshal(message, r))
			write(b, r)
		}
	}
}

// ask writes a request to the member.
func ask(b *strings.Builder, req *pb.WatchRequest) {
	switch r := req.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		c := r.CreateRequest
		fmt.Fprintf(b, "to the member: create %d of [%s, %s) from %d\n", c.WatchId, c.Key, c.RangeEnd, c.StartRevision)
	case *pb.WatchRequest_CancelRequest:
		fmt.Fprintf(b, "to the member: cancel %d\n", r.CancelRequest.WatchId)
	case *pb.WatchRequest_ProgressRequest:
		b.WriteString("to the member: progress\n")
	}
}

func write(b *strings.Builder, r *pb.WatchResponse) {
	fmt.Fprintf(b, "watcher %d, revision %d:", r.WatchId, r.Header.Revision)
	if r.Created {
		b.WriteString(" created")
	}
	if r.Canceled {
		b.WriteString(" canceled " + r.CancelReason)
	}
	if r.CompactRevision > 0 {
		fmt.Fprintf(b, " compacted through %d", r.CompactRevision)
	}
	if !r.Created && !r.Canceled && len(r.Events) == 0 {
		b.WriteString(" progress")
	}
	for _, e := range r.Events {
		fmt.Fprintf(b, " %s@%d", e.Kv.Key, e.Kv.ModRevision)
	}
	b.WriteString("\n")
}

func (s *story) feed() {
	m := s.behind.member
	m.rev = s.h.rev
	m.take(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: s.behind.w.Request()}})
	m.progress = true
	m.step(10, 10)
	for r := m.response(s); r != nil && s.behind.w.Behind(s.behind.turn) && s.behind.w.Hungry(); r = m.response(s) {
		s.behind.w.Feed(s.behind.turn, r)
	}
}
