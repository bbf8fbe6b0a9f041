package relay

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// history is a cluster's: the keys that each revision has changed.
type history struct {
	keys    map[int64][]string
	rev     int64
	compact int64
}

func (h *history) put(keys ...string) {
	h.rev++
	h.keys[h.rev] = keys
}

func (h *history) of(rev int64, k spanKey) (keys []string) {
	for _, key := range h.keys[rev] {
		if key == k.key || k.end != "" && key >= k.key && key < k.end {
			keys = append(keys, key)
		}
	}
	return keys
}

// member is one stream to a member, which may be behind the cluster.
type member struct {
	h        *history
	rev      int64
	watchers []*memberWatcher
	progress bool
	out      []*pb.WatchResponse
	cluster  uint64 // 0: 7
}

type memberWatcher struct {
	id   int64
	key  spanKey
	next int64
}

func (m *member) say(r *pb.WatchResponse, rev int64) {
	r.Header = &pb.ResponseHeader{ClusterId: cmp.Or(m.cluster, 7), MemberId: 8, RaftTerm: 9, Revision: rev}
	m.out = append(m.out, r)
}

func (m *member) take(req *pb.WatchRequest) {
	switch r := req.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		w := &memberWatcher{r.CreateRequest.WatchId, keyOf(r.CreateRequest), r.CreateRequest.StartRevision}
		if w.next == 0 {
			w.next = m.rev + 1
		}
		m.say(&pb.WatchResponse{WatchId: w.id, Created: true}, m.rev)
		m.watchers = append(m.watchers, w)
	case *pb.WatchRequest_CancelRequest:
		m.end(r.CancelRequest.WatchId, &pb.WatchResponse{})
	case *pb.WatchRequest_ProgressRequest:
		m.progress = true
	}
}

func (m *member) end(id int64, r *pb.WatchResponse) {
	for i, w := range m.watchers {
		if w.id == id {
			m.watchers = append(m.watchers[:i:i], m.watchers[i+1:]...)
			r.WatchId, r.Canceled = id, true
			m.say(r, m.rev)
			return
		}
	}
}

// step delivers what there is, so many revisions in a response, or so many events in a fragment.
func (m *member) step(revisions, fragment int) {
	level := true
	for _, w := range m.watchers {
		if w.next <= m.rev && w.next < m.h.compact {
			m.end(w.id, &pb.WatchResponse{CompactRevision: m.h.compact})
			return
		}
		r := &pb.WatchResponse{WatchId: w.id}
		for n := 0; w.next <= m.rev && n < revisions; w.next++ {
			keys := m.h.of(w.next, w.key)
			for _, key := range keys {
				r.Events = append(r.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: w.next, Value: fmt.Append(nil, w.next)}})
			}
			n += min(1, len(keys))
		}
		for events := r.Events; len(events) > 0; {
			n := min(fragment, len(events))
			m.say(&pb.WatchResponse{WatchId: w.id, Events: events[:n], Fragment: n < len(events)}, w.next-1)
			events = events[n:]
		}
		level = level && w.next == m.rev+1
	}
	if m.progress && level && len(m.watchers) > 0 {
		m.progress = false
		m.say(&pb.WatchResponse{WatchId: everyWatcher}, m.rev)
	}
}

func (m *member) tick() {
	for _, w := range m.watchers {
		if w.next == m.rev+1 {
			m.say(&pb.WatchResponse{WatchId: w.id}, m.rev)
		}
	}
}

// response is what comes next; nil for nothing.
func (m *member) response(t require.TestingT) *Response {
	if len(m.out) == 0 {
		return nil
	}
	b, err := proto.Marshal(m.out[0])
	require.NoError(t, err)
	m.out = m.out[1:]
	r, err := Read(b)
	require.NoError(t, err)
	return r
}

func TestReadMalformed(t *testing.T) {
	whole, err := proto.Marshal(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 5}, WatchId: 3, CancelReason: "x",
		Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 4}}}})
	require.NoError(t, err)
	r, err := Read(whole)
	require.NoError(t, err)
	require.EqualValues(t, 4, r.events[0].rev)
	for n := range whole {
		_, _ = Read(whole[:n]) // no panic
	}
	_, err = Read(append(whole, fieldEvents<<3|2, 0)) // an event without a key
	require.Error(t, err)
}
