package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// unconnected is an open session without a stream: a test hands it the server's messages.
func unconnected() *Session {
	s := None()
	s.err, s.done, s.watches = nil, make(chan struct{}), map[uint64]*Watch{}
	return s
}

// hear is what the session does with a message that answers all its requests.
func (s *Session) hear(t *testing.T, replies ...*stoapb.Reply) {
	s.backlog.take(nil, 1<<20, 1<<20, 1<<20)
	var batch serverBatch
	require.NoError(t, batch.read(must(proto.Marshal(&stoapb.ServerBatch{Replies: replies})), new(origin)))
	require.NoError(t, s.receive(new(stream), &batch))
}

// seen are the revisions of the events that a watch has brought.
type seen struct{ revisions []int64 }

func (s *seen) Respond(*pb.WatchResponse) {}
func (s *seen) End(error)                 {}
func (s *seen) Bring(r *pb.WatchResponse) {
	for _, e := range r.Events {
		s.revisions = append(s.revisions, e.Kv.ModRevision)
	}
}

// An answer to a request for progress says nothing of a watch that is opened behind it, also if both
// answers come in one message.
func TestProgressBeforeAWatchOfThePast(t *testing.T) {
	s, to := unconnected(), new(seen)
	progress := empty[int64](t.Context(), s, stoapb.Kind_PROGRESS)
	opened := OpenWatch(t.Context(), s.NewWatch(AskFor("k", []clientv3.OpOption{clientv3.WithRev(2)}), to), true)
	event := func(revision int64) *stoapb.Reply {
		kv := &mvccpb.KeyValue{Key: []byte("k"), ModRevision: revision}
		return &stoapb.Reply{Seq: 2, Event: true, Revision: revision, Body: must(proto.Marshal(&pb.WatchResponse{Events: []*mvccpb.Event{{Kv: kv}}}))}
	}
	s.hear(t, &stoapb.Reply{Seq: 1, Revision: 3},
		&stoapb.Reply{Seq: 2, Revision: 3, Body: must(proto.Marshal(&pb.WatchResponse{Created: true}))}, event(2), event(3))
	require.EqualValues(t, 3, must(progress.Wait(t.Context())))
	require.True(t, must(opened.Wait(t.Context())))
	require.Equal(t, []int64{2, 3}, to.revisions)
}

// A Close whose context ends just as its answer, that the lease is gone, has come.
func TestCloseIsAbandonedAsItIsAnswered(t *testing.T) {
	s, last := unconnected(), new(revisionFuture[int64])
	require.NoError(t, s.send(t.Context(), &request{kind: stoapb.Kind_CLOSE, to: last}))
	s.end(ErrSessionClosed)
	s.closedBefore()
	_, err := last.Wait(t.Context())
	require.ErrorIs(t, err, ErrSessionClosed)
}

// Close while another waits for its answer waits, too, and its context's end leaves that one alone.
func TestCloseByTwo(t *testing.T) {
	s, first := unconnected(), new(revisionFuture[int64])
	put := s.PutAsync("k", "v")
	require.NoError(t, s.send(t.Context(), &request{kind: stoapb.Kind_CLOSE, to: first}))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Close(over), context.Canceled)
	require.NoError(t, s.Err())

	second := make(chan error)
	go func() { second <- s.Close(t.Context()) }()
	s.hear(t, &stoapb.Reply{Seq: 1, Revision: 2}, &stoapb.Reply{Seq: 2, Revision: 3})
	s.end(ErrSessionClosed) // by the first
	require.NoError(t, <-second)
	require.EqualValues(t, 2, must(put.Wait(t.Context())).Header.Revision)
	require.NoError(t, s.Close(over))
}

// What comes behind the end of a session, or behind Close, was not sent, and says so: also what was waiting for room.
func TestNothingIsSentBehindTheEnd(t *testing.T) {
	refused := func(s *Session, why error) {
		batch := s.Batch(false)
		batch.Put("k", "v")
		for what, err := range map[string]error{
			"put":   failed(s.PutAsync("k", "v").Wait(t.Context())),
			"get":   failed(s.Get(t.Context(), "k")),
			"batch": batch.Send(t.Context()),
			"watch": failed(OpenWatch(t.Context(), s.NewWatch(AskFor("k", nil), new(seen)), true).Wait(t.Context())),
			"sync":  failed(s.Sync(t.Context())),
		} {
			require.ErrorIs(t, err, why, what)
			require.ErrorIs(t, err, ErrNotSent, what)
		}
	}
	s, last := unconnected(), new(revisionFuture[int64])
	require.NoError(t, s.send(t.Context(), &request{kind: stoapb.Kind_CLOSE, to: last}))
	refused(s, ErrSessionClosed)
	s.end(ErrSessionExpired)
	refused(s, ErrSessionExpired)

	s = unconnected()
	s.c.cfg.Pending = 1
	s.PutAsync("k", "v")
	waits := make(chan error)
	go func() { waits <- failed(s.Put(t.Context(), "k", "v")) }()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.space != nil
	}, 10*time.Second, time.Millisecond)
	s.end(ErrSessionExpired)
	require.ErrorIs(t, <-waits, ErrNotSent)
}

func failed[T any](_ T, err error) error { return err }

// A watch is closed also while the session takes no more requests.
func TestWatchIsClosedWithoutRoom(t *testing.T) {
	s, to := unconnected(), new(seen)
	s.c.cfg.Pending = 1
	w := s.NewWatch(AskFor("k", nil), to)
	opened := OpenWatch(t.Context(), w, true)
	w.Close()
	s.hear(t, &stoapb.Reply{Seq: 1, Revision: 3, Body: must(proto.Marshal(&pb.WatchResponse{Created: true}))}, &stoapb.Reply{Seq: 2, Revision: 3})
	require.True(t, must(opened.Wait(t.Context())))
	require.Empty(t, s.watches)
}

// An ordered watch on which nothing happens goes on behind the answers that reflect a state: its events come before them, and
// what lies further back may be compacted.
func TestQuietWatchGoesOnBehindAnswers(t *testing.T) {
	s, ctx := unconnected(), t.Context()
	w := s.NewWatch(AskFor("quiet", nil), new(seen))
	OpenWatch(ctx, w, true)
	s.hear(t, &stoapb.Reply{Seq: 1, Revision: 3, Body: must(proto.Marshal(&pb.WatchResponse{Created: true}))})
	other := s.At(Fast).NewWatch(AskFor("quiet", nil), new(seen))
	OpenWatch(ctx, other, true)
	s.hear(t, &stoapb.Reply{Seq: 2, Revision: 3, Body: must(proto.Marshal(&pb.WatchResponse{Created: true}))})
	resumes := func(w *Watch) int64 {
		var ask pb.WatchCreateRequest
		require.NoError(t, proto.Unmarshal(w.resume(w.seq).Body, &ask))
		return ask.StartRevision
	}
	for i, step := range []struct {
		send func()
		next int64 // of the watch, when revision 10 * its place is the answer's
	}{
		{func() { s.GetAsync("k") }, 11},
		{func() { s.PutAsync("k", "v") }, 11}, // an event of before it may come behind the answer
		{func() { s.TxnAsync(nil, []clientv3.Op{clientv3.OpPut("k", "v")}, nil) }, 31},
		{func() { s.At(Fast).TxnAsync(nil, []clientv3.Op{clientv3.OpGet("k")}, nil) }, 31},
		{func() { s.DeleteAsync("k") }, 51},
		{func() { s.At(Fast).GetAsync("k") }, 51},
		{func() { SyncAsync[int64](s) }, 71},
	} {
		step.send()
		s.hear(t, &stoapb.Reply{Seq: uint64(i + 3), Revision: int64(10 * (i + 1))})
		require.Equal(t, step.next, resumes(w), "behind step %d", i)
		require.EqualValues(t, 4, resumes(other), "a fast one has events of its own order")
	}
}
