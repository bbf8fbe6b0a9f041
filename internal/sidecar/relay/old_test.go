package relay

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// A member of an older etcd that is behind tells a watcher that begins later progress at its own revision. The events that
// came before, from another member, stay in their places.
func TestProgressOfAMemberThatIsBehind(t *testing.T) {
	h := &history{keys: map[int64][]string{}, rev: 1}
	hub := New(Options{Entries: 10, Bytes: 1 << 20, Total: 1 << 20, Fragment: 1 << 20}, func() {})
	open := func(start int64) *Stream {
		st := hub.Open(func() {})
		o := st.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: start, ProgressNotify: true})
		o.Answered(h.rev, false)
		return st
	}
	connect := func(rev int64) *member {
		hub.Disconnected()
		m := &member{h: h, rev: rev}
		hub.Connected()
		return m
	}
	exchange := func(m *member) {
		for _, req := range hub.Take() {
			m.take(req)
		}
		m.step(10, 10)
		for r := m.response(t); r != nil; r = m.response(t) {
			hub.Receive(r)
		}
	}
	// revisions are those of events and, negative, of progress.
	revisions := func(st *Stream) (all []int64) {
		for {
			message, _, err := st.Next()
			require.NoError(t, err)
			if message == nil {
				return all
			}
			r := new(pb.WatchResponse)
			require.NoError(t, proto.Unmarshal(message, r))
			switch {
			case r.Created:
			case len(r.Events) > 0:
				all = append(all, r.Header.Revision)
			default:
				all = append(all, -r.Header.Revision)
			}
		}
	}

	m := connect(1)
	first := open(2)
	exchange(m)
	h.put("k")
	m.rev = h.rev
	exchange(m)
	require.Equal(t, []int64{2}, revisions(first))

	m = connect(1)
	exchange(m)
	m.say(&pb.WatchResponse{WatchId: m.watchers[0].id}, 1)
	exchange(m)
	require.Empty(t, revisions(first))
	second := open(2)
	exchange(m)
	require.Equal(t, []int64{2}, revisions(second))
}
