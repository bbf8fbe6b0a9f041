package apply

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Invariant 4: whatever stands in the log, apply goes on, and so does everyone
// alike: a second machine with no waiting clients ends in the same state.
func FuzzEntry(f *testing.F) {
	seed := func(e command.Entry) { f.Add(e.AppendTo(nil)) }
	seed(command.Entry{Stamp: 2, Commands: []command.Command{
		cmd(&pb.PutRequest{Key: []byte("foo"), Value: []byte("1"), PrevKv: true}),
		cmd(&pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), PrevKv: true}),
		cmd(&pb.LeaseGrantRequest{ID: 1, TTL: 10}),
		cmd(&pb.LeaseRevokeRequest{ID: 1}),
		cmd(&pb.CompactionRequest{Revision: 2}),
		cmd(&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 1}),
	}})
	seed(command.Entry{Commands: []command.Command{cmd(&pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("foo"), RangeEnd: []byte{0}, Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("1")}}},
		Success: []*pb.RequestOp{operationOf(&pb.PutRequest{Key: []byte("foo"), IgnoreValue: true})},
		Failure: []*pb.RequestOp{
			operationOf(&pb.RangeRequest{Key: []byte("foo"), Revision: 1, SortTarget: 7, SortOrder: 9, Limit: -1}),
			operationOf(&pb.TxnRequest{Success: []*pb.RequestOp{operationOf(&pb.DeleteRangeRequest{Key: []byte("foo")}), {}}}),
		},
	})}})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := command.Decode(b); err != nil {
			return
		}
		for _, in := range []placement.Set{placement.Of(0), placement.Of(1), placement.Of(0) | placement.Of(1)} {
			waited, unwaited := newRig(2), newRig(2)
			waited.quiet, unwaited.quiet = true, true
			for range 2 { // the second time it meets its own traces
				e, _ := command.Decode(b)
				waited.lift(&e)
				waited.entry(&e, in, func(int, Result) {})
				e, _ = command.Decode(b)
				unwaited.lift(&e)
				unwaited.entry(&e, in, nil)
			}
			require.Equal(t, waited.storyState(), unwaited.storyState())
			require.Equal(t, len(waited.events), len(unwaited.events))
		}
	})
}

// lift gives an entry that has a stamp one that can follow: the others are fatal, see
// TestAStampThatWasGivenOutBeforeIsFatal.
func (r *rig) lift(e *command.Entry) {
	for _, s := range r.Stores {
		if e.Stamp > 0 {
			e.Stamp = max(e.Stamp, s.Rev()+1)
		}
	}
}

// Invariant 2, for readers at work while a rendezvous is: no reader sees half of
// one, neither in one range nor in the ranges of one transaction.
func TestReadersSeeWholeTransactions(t *testing.T) {
	r := newRig(2)
	r.quiet = true
	a, b := []byte("foo"), []byte("/b/x")
	require.NotEqual(t, r.Placement().Partition(a), r.Placement().Partition(b))
	var done atomic.Int64 // the newest revision that is complete
	write := func(stamp int64) {
		v := fmt.Append(nil, stamp)
		r.apply(stamp, &pb.TxnRequest{Success: []*pb.RequestOp{
			operationOf(&pb.PutRequest{Key: a, Value: v}), operationOf(&pb.PutRequest{Key: b, Value: v}),
		}})
		done.Store(stamp)
	}
	write(2)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for done.Load() < 500 {
				at := done.Load()
				all, err := r.Range(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}, r.Placement().All(), at, 0)
				if err != nil || len(all.Kvs) != 2 || string(all.Kvs[0].Value()) != fmt.Sprint(at) || string(all.Kvs[1].Value()) != fmt.Sprint(at) {
					t.Errorf("range at %d: %v %v", at, all, err)
					return
				}
				at = done.Load()
				txn, err := r.ReadTxn(&pb.TxnRequest{Compare: []*pb.Compare{
					{Key: a, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: at}},
					{Key: b, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: at}},
				}}, r.Placement().All(), at, 0)
				if err != nil || !txn.Succeeded {
					t.Errorf("transaction at %d: %v %v", at, txn, err)
					return
				}
			}
		})
	}
	for stamp := int64(3); stamp <= 500; stamp++ {
		write(stamp)
	}
	readers.Wait()
}
