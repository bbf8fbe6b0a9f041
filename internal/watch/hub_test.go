package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

func put(key string, rev, sub int64) store.Change {
	return store.Change{
		Revision: store.Revision{Main: rev, Sub: sub},
		Kv:       kvwire.Make([]byte(key), []byte("v"), kvwire.Fields{ModRevision: rev, CreateRevision: rev, Version: 1}),
	}
}

// journal is history in memory.
type journal struct {
	mu      sync.Mutex
	changes [][]store.Change
	err     error
	asked   int
}

func (j *journal) add(p int, c store.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes[p] = append(j.changes[p], c)
}

func (j *journal) read(p int, key, end []byte, from, to int64, bounds store.Bounds, _ bool) ([]store.Change, int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked++
	if j.err != nil {
		return nil, 0, j.err
	}
	w := newWatcher(nil, &pb.WatchCreateRequest{Key: key, RangeEnd: end})
	var out []store.Change
	for _, c := range j.changes[p] {
		if rev := c.Main; rev >= from && rev <= to && w.covers(c.Kv.Key()) {
			if len(out) >= bounds.Changes && out[len(out)-1].Main < rev {
				return out, rev - 1, nil
			}
			out = append(out, c)
		}
	}
	return out, to, nil
}

func newJournal(partitions int) *journal {
	return &journal{changes: make([][]store.Change, partitions)}
}

// TestConcurrent has everything run at once: publishers, Run, and readers that
// sleep, open and close. Every reader checks that it gets all of its key.
func TestConcurrent(t *testing.T) {
	const partitions, revisions = 3, 4000
	j := newJournal(partitions)
	h := NewHub(partitions, j.read, Options{RecentRevisions: 64, QueueResponses: 16, BatchEvents: 50})
	f := h.Reset([]int64{1, 1, 1}, 0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var background, readers sync.WaitGroup
	background.Go(func() { h.Run(ctx) })

	background.Go(func() {
		for rev := int64(2); rev <= revisions; rev++ {
			p := int(rev) % partitions
			c := put("k", rev, 0)
			j.add(p, c)
			f.Changes(p, rev, []store.Change{c})
			if rev%5 == 0 {
				for q := range partitions {
					f.Advance(q, rev)
				}
			}
		}
		for q := range partitions {
			f.Advance(q, revisions)
		}
	})
	for i := range 12 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			next := int64(2)
			for next <= revisions {
				s := h.NewStream("")
				s.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: next})
				for range 1 + rng.IntN(40) {
					r, err := s.Recv(ctx)
					require.NoError(t, err)
					for _, e := range r.Events {
						require.Equal(t, next, e.Kv.ModRevision)
						next++
					}
					if next > revisions {
						break
					}
					if rng.IntN(20) == 0 {
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
					}
				}
				s.Close()
			}
		})
	}
	readers.Wait()
	cancel()
	background.Wait()
	require.Zero(t, h.Stats().Watchers)
}

func TestStuckReaderIsBounded(t *testing.T) {
	j := newJournal(1)
	h := NewHub(1, j.read, Options{RecentRevisions: 10, QueueResponses: 8})
	f := h.Reset([]int64{1}, 0)
	stuck, quick := h.NewStream(""), h.NewStream("")
	for _, s := range []*Stream{stuck, quick} {
		s.Create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("z")})
	}
	recv := func(s *Stream) Response {
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok)
		return r
	}
	require.True(t, recv(quick).Created)
	for rev := int64(2); rev < 1000; rev++ {
		c := put("k", rev, 0)
		j.add(0, c)
		f.Changes(0, rev, []store.Change{c})
		h.Step()
		require.Equal(t, rev, recv(quick).Events[0].Kv.ModRevision)
	}
	require.Zero(t, j.asked, "the quick one never needed history")
	require.LessOrEqual(t, len(stuck.queue)-stuck.head, 9)
	require.LessOrEqual(t, len(h.parts[0].recent), 10)
	require.EqualValues(t, 1, h.Stats().Slow)

	require.True(t, recv(stuck).Created)
	for next := int64(2); next < 1000; {
		for _, e := range recv(stuck).Events {
			require.Equal(t, next, e.Kv.ModRevision)
			next++
		}
	}
	require.EqualValues(t, 0, h.Stats().Slow)
}

// A merged watcher waits for all its partitions; a single one doesn't, if its stream is
// eager.
func TestMergeWaitsForClosed(t *testing.T) {
	h := NewHub(2, newJournal(2).read, Options{Parts: func(key, end []byte) placement.Set {
		if end == nil {
			return placement.Of(int(key[0]) % 2)
		}
		return placement.Of(0) | placement.Of(1)
	}})
	f := h.Reset([]int64{1, 1}, 0)
	s := h.NewNotifiedStream("", func() {})
	for id, end := range [][]byte{nil, []byte("z")} {
		_, err := s.Open(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: end, WatchId: int64(id + 1)}, 0)
		require.NoError(t, err)
	}
	drain := func() (out []string) {
		h.Step()
		for {
			r, ok, err := s.TryRecv()
			require.NoError(t, err)
			if !ok {
				return out
			}
			for _, e := range r.Events {
				out = append(out, fmt.Sprintf("%d:%s@%d", r.WatchId, e.Kv.Key, e.Kv.ModRevision))
			}
		}
	}
	require.Empty(t, drain())
	f.Changes(1, 3, []store.Change{put("a", 3, 0)})
	require.Equal(t, []string{"1:a@3"}, drain())
	f.Advance(1, 3)
	require.Empty(t, drain(), "partition 0 may still bring 2")
	f.Changes(0, 2, []store.Change{put("b", 2, 0)})
	f.Advance(0, 2)
	require.Equal(t, []string{"2:b@2"}, drain())
	// One revision over both partitions, in the order of sub-revisions.
	f.Changes(0, 4, []store.Change{put("b", 4, 1)})
	f.Advance(0, 4)
	require.Equal(t, []string{"2:a@3"}, drain())
	f.Changes(1, 4, []store.Change{put("a", 4, 0), put("c", 4, 2)})
	f.Advance(1, 4)
	require.Equal(t, []string{"1:a@4", "2:a@4", "2:b@4", "2:c@4"}, drain())
}

// Reads of any partition show the revisions that a stream of etcd's API
// announces: the revision that a watcher begins behind, events, and progress.
func TestAnnouncedIsShown(t *testing.T) {
	h := NewHub(2, newJournal(2).read, Options{Parts: func(key, _ []byte) placement.Set { return placement.Of(int(key[0]) % 2) }})
	f := h.Reset([]int64{1, 1}, 0)
	s := h.NewStream("")
	drain := func() (out []string) {
		h.Step()
		for {
			r, ok, err := s.TryRecv()
			require.NoError(t, err)
			if !ok {
				return out
			}
			require.LessOrEqual(t, r.Header.Revision, h.Floor())
			out = append(out, fmt.Sprintf("%d@%d created=%v canceled=%v events=%d", r.WatchId, r.Header.Revision, r.Created, r.Canceled, len(r.Events)))
		}
	}
	f.Changes(1, 3, []store.Change{put("a", 3, 0)})
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 1})
	s.Refuse("in its place")
	s.Create(&pb.WatchCreateRequest{Key: []byte("b"), WatchId: 2, StartRevision: 2})
	require.Empty(t, drain(), "partition 0 doesn't show 3")
	f.Changes(0, 2, []store.Change{put("b", 2, 0)})
	f.Advance(0, 3)
	require.Empty(t, drain(), "partition 1 isn't known to be closed")
	f.Advance(1, 3)
	require.Equal(t, []string{
		"1@3 created=true canceled=false events=0", "-1@3 created=true canceled=true events=0",
		"2@3 created=true canceled=false events=0", "2@2 created=false canceled=false events=1",
	}, drain())
	f.Changes(1, 4, []store.Change{put("a", 4, 0)})
	s.RequestProgress()
	require.Equal(t, []string{"-1@3 created=false canceled=false events=0"}, drain())
	f.Advance(1, 4)
	require.Empty(t, drain(), "partition 0 may still bring 4")
	f.Advance(0, 4)
	require.Equal(t, []string{"1@4 created=false canceled=false events=1"}, drain())

	// On a partitioned server nothing closes any more: new watchers begin after
	// the shown revision.
	f.Changes(1, 6, []store.Change{put("a", 6, 0)})
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 3})
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 4})
	require.Empty(t, drain())
	s.Cancel(3)
	require.Equal(t, []string{
		"3@4 created=true canceled=false events=0", "3@4 created=false canceled=true events=0",
	}, drain(), "those behind it are not opened early")
	n := s.CreateWith(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 5}, nil)
	s.Refuse("behind it")
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 6})
	s.Hasten(n)
	require.Equal(t, []string{
		"4@4 created=true canceled=false events=0", "5@4 created=true canceled=false events=0", "-1@4 created=true canceled=true events=0",
	}, drain())
	f.Advance(0, 6)
	f.Advance(1, 6)
	require.Equal(t, []string{
		"6@6 created=true canceled=false events=0", "1@6 created=false canceled=false events=1", "4@6 created=false canceled=false events=1",
		"5@6 created=false canceled=false events=1",
	}, drain())
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7})
	f.Changes(1, 7, []store.Change{put("a", 7, 0)})
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 8})
	s.Close()
	h.Step()
	require.Empty(t, h.opening)
	require.Empty(t, h.groups)
}

func TestCreateRefused(t *testing.T) {
	h := NewHub(1, newJournal(1).read, Options{})
	h.Reset([]int64{7}, 0)
	s := h.NewStream("")
	s.Create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 3})
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 3})
	s.Refuse("because")
	for _, want := range []struct {
		id     int64
		reason string
	}{{-1, ErrEmptyRange.Error()}, {3, ""}, {-1, ErrDuplicateID.Error()}, {-1, "because"}} {
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, r.Created)
		require.Equal(t, want.id, r.WatchId)
		require.Equal(t, want.reason != "", r.Canceled)
		require.Equal(t, want.reason, r.CancelReason)
		require.EqualValues(t, 7, r.Header.Revision)
	}
}

func TestHistoryFails(t *testing.T) {
	j := newJournal(1)
	h := NewHub(1, j.read, Options{})
	h.Reset([]int64{7}, 0)
	s := h.NewStream("")
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
	_, ok, err := s.TryRecv()
	require.True(t, ok)
	require.NoError(t, err)
	j.err = errors.New("disk")
	_, _, err = s.TryRecv()
	require.ErrorIs(t, err, j.err)
}

func TestAdmitBlocksAFlood(t *testing.T) {
	h := NewHub(1, newJournal(1).read, Options{})
	s := h.NewStream("")
	ctx := context.Background()
	n := 0
	for ; n < 10*h.o.QueueControls; n++ {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err := s.Admit(short)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		s.Create(&pb.WatchCreateRequest{Key: []byte("a")})
	}
	require.Equal(t, h.o.QueueControls, n)
	_, err := s.Recv(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Admit(ctx))
	s.Close()
	require.ErrorIs(t, s.Admit(ctx), ErrClosed)
	_, err = s.Recv(ctx)
	require.ErrorIs(t, err, ErrClosed)
}

// An extension's answer isn't announced before all partitions show its revision, and its header isn't lower.
func TestTheFirstEventWaits(t *testing.T) {
	h := NewHub(2, newJournal(2).read, Options{})
	f := h.Reset([]int64{1, 1}, 0)
	s := h.NewStream("")
	first := &mvccpb.Event{Kv: put("a", 3, 0).Kv.Message()}
	waits := func(id int64) {
		f.Changes(1, 3, []store.Change{put("a", 3, 0)})
		require.NotZero(t, s.CreateWith(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: id, StartRevision: 4}, first))
		require.EqualValues(t, 1, h.Floor())
	}
	next := func(rev, events int) {
		r, more, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, more)
		require.EqualValues(t, rev, r.Header.Revision)
		require.Len(t, r.Events, events)
	}
	waits(1)
	s.Hasten(s.CreateWith(&pb.WatchCreateRequest{Key: []byte("b"), WatchId: 2}, nil))
	_, more, err := s.TryRecv()
	require.NoError(t, err)
	require.False(t, more)
	f.Advance(0, 3)
	f.Advance(1, 3)
	h.Step()
	next(3, 0)
	next(3, 1)
	next(3, 0)

	h = NewHub(2, newJournal(2).read, Options{})
	f = h.Reset([]int64{1, 1}, 0)
	s = h.NewStream("")
	waits(1)
	s.Cancel(1) // which has to be answered behind it
	next(3, 0)
	next(3, 1)
	require.EqualValues(t, 3, h.Floor(), "reads show what was announced")
}

// On a server that is partitioned from its leader nothing is published any more: progress that was requested while a
// watcher was opening comes once that is hastened.
func TestProgressBehindAHastenedAnswer(t *testing.T) {
	h := NewHub(2, newJournal(2).read, Options{})
	f := h.Reset([]int64{1, 1}, 0)
	f.Changes(1, 3, []store.Change{put("a", 3, 0)})
	s := h.NewStream("")
	n := s.CreateWith(&pb.WatchCreateRequest{Key: []byte("a")}, nil)
	s.RequestProgress()
	s.Hasten(n)
	for _, id := range []int64{0, noID} {
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, id, r.WatchId)
		require.EqualValues(t, 1, r.Header.Revision)
	}
}

// Answers that wait for partitions count.
func TestAdmitCountsWaitingAnswers(t *testing.T) {
	h := NewHub(2, newJournal(2).read, Options{})
	h.Reset([]int64{1, 3}, 0)
	s := h.NewStream("")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for range h.o.QueueControls {
		require.NoError(t, s.Admit(context.Background()))
		s.Create(&pb.WatchCreateRequest{Key: []byte("a")})
	}
	require.ErrorIs(t, s.Admit(over), context.Canceled)
	s.Hasten(int64(h.o.QueueControls))
	require.ErrorIs(t, s.Admit(over), context.Canceled)
	_, err := s.Recv(context.Background())
	require.NoError(t, err)
	require.NoError(t, s.Admit(context.Background()))
}

// A watcher that is canceled before it is open doesn't open those before it early, neither by its client nor for lack of
// permission: the answers to its creation and its end come behind theirs.
func TestCancelOfAWatcherBehindOthers(t *testing.T) {
	h := NewHub(2, newJournal(2).read, Options{})
	f := h.Reset([]int64{1, 1}, 0)
	f.Changes(1, 3, []store.Change{put("a", 3, 0)})
	s := h.NewStream("")
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 1})
	for _, id := range []int64{2, 3} {
		s.CreateWith(&pb.WatchCreateRequest{Key: []byte("b"), WatchId: id}, &mvccpb.Event{Kv: put("b", 3, 0).Kv.Message()})
	}
	s.Cancel(2)
	s.Cancel(2)
	f.Permit(1, func(_ uint64, key, _ []byte) error {
		if string(key) == "b" {
			return errors.New("forbidden")
		}
		return nil
	}, nil)
	_, more, err := s.TryRecv()
	require.NoError(t, err)
	require.False(t, more)
	require.NoError(t, s.enter(newWatcher(s, &pb.WatchCreateRequest{Key: []byte("a")}), 2), "its number is free")
	f.Changes(0, 3, nil)
	f.Advance(0, 3)
	f.Advance(1, 3)
	h.Step()
	for _, want := range []string{"1@3", "2@3", "2@3 canceled ", "3@3", "3@3 canceled forbidden"} {
		r, more, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, more)
		got := fmt.Sprintf("%d@%d", r.WatchId, r.Header.Revision)
		if require.Equal(t, !r.Canceled, r.Created); r.Canceled {
			got += " canceled " + r.CancelReason
		}
		require.Equal(t, want, got)
	}
	_, more, err = s.TryRecv()
	require.NoError(t, err)
	require.False(t, more)
}
