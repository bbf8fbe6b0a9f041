package transport

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

func drawBatch(t *rapid.T, n *uint64) *peerpb.Batch {
	b := &peerpb.Batch{}
	for range rapid.IntRange(0, 3).Draw(t, "raft") {
		b.Raft = append(b.Raft, binary.BigEndian.AppendUint64(nil, *n))
		*n++
	}
	for range rapid.IntRange(0, 2).Draw(t, "calls") {
		b.Calls = append(b.Calls, &peerpb.Call{Id: *n, Body: make([]byte, rapid.IntRange(0, 300).Draw(t, "body"))})
		b.Replies = append(b.Replies, &peerpb.Reply{Id: *n})
		*n++
	}
	if rapid.Bool().Draw(t, "closed") {
		b.Closed = append(b.Closed, &peerpb.Closed{Group: rapid.Uint32Range(0, 2).Draw(t, "group"), Revision: int64(*n)})
	}
	if rapid.Bool().Draw(t, "confirm") {
		b.Confirm = &peerpb.Confirm{Round: *n}
		b.ConfirmAck = &peerpb.ConfirmAck{Round: *n}
		b.Settled = *n
	}
	return b
}

// For any sequence of push and take: each kind keeps its order, only the latest
// of a kind may replace earlier ones, callers' batches are not written to, and
// the bound holds.
func TestQueueKeepsOrderAndBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 4 << 10
		q := newQueue(limit)
		var n uint64 = 1
		var pushed, copies []*peerpb.Batch
		var want, got peerpb.Batch
		refused := false
		take := func() bool {
			b, bytes, overflow := q.take()
			require.Equal(t, refused, overflow)
			refused = false
			if b == nil {
				return false
			}
			require.Positive(t, bytes)
			merge(&got, b)
			return true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "take") == 0 {
				take()
				continue
			}
			b := drawBatch(t, &n)
			pushed, copies = append(pushed, b), append(copies, proto.Clone(b).(*peerpb.Batch))
			if q.push(b) {
				merge(&want, b)
			} else {
				refused = true
			}
			require.LessOrEqual(t, q.bytes, limit)
		}
		for take() {
		}
		require.True(t, proto.Equal(&want, &got), "want %v\ngot  %v", &want, &got)
		require.Zero(t, q.bytes)
		for i := range pushed {
			require.True(t, proto.Equal(copies[i], pushed[i]))
		}
	})
}

func TestOneBatchMayExceedTheBoundWhenNothingWaits(t *testing.T) {
	q := newQueue(100)
	big := &peerpb.Batch{Raft: [][]byte{make([]byte, 1000)}}
	require.True(t, q.push(big))
	require.False(t, q.push(call(1)))
	require.True(t, q.clear())
	require.False(t, q.clear())
	require.True(t, q.push(call(1)))
}

func TestFullBatchesTakeInNoMore(t *testing.T) {
	q := newQueue(64 << 20)
	for range 5 {
		require.True(t, q.push(&peerpb.Batch{Raft: [][]byte{make([]byte, fullBatch/2)}}))
	}
	n := 0
	for b, _, _ := q.take(); b != nil; b, _, _ = q.take() {
		require.LessOrEqual(t, weight(b), fullBatch)
		n++
	}
	require.GreaterOrEqual(t, n, 3)
}

func BenchmarkQueue(b *testing.B) {
	q := newQueue(64 << 20)
	batch := &peerpb.Batch{Raft: appendOf300()}
	b.ReportAllocs()
	for b.Loop() {
		for range 8 {
			q.push(batch)
		}
		q.take()
	}
}

func TestAMergedBatchKeepsTheLatestSettledGeneration(t *testing.T) {
	q := newQueue(1 << 20)
	for _, g := range []uint64{4, 5, 0} {
		require.True(t, q.push(&peerpb.Batch{Settled: g}))
	}
	b, _, _ := q.take()
	require.EqualValues(t, 5, b.GetSettled())
}
