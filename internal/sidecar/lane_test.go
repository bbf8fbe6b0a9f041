package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/internal/fault"
)

// fakeSession answers a batch when the test says so.
type fakeSession struct {
	batches chan []*fakeAnswer
	calls   chan *fakeAnswer
	done    chan struct{}
	once    sync.Once
	err     error
}

type fakeAnswer struct {
	*request
	ready chan struct{}
	out   []byte
	fail  error
}

func (a *fakeAnswer) Wait(ctx context.Context) ([]byte, error) {
	select {
	case <-a.ready:
		return a.out, a.fail
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *fakeAnswer) give(err error) { a.out, a.fail = a.body, err; close(a.ready) }

func newFakeSession() *fakeSession {
	return &fakeSession{batches: make(chan []*fakeAnswer, 100), calls: make(chan *fakeAnswer, 100), done: make(chan struct{})}
}

func (s *fakeSession) Done() <-chan struct{} { return s.done }

func (s *fakeSession) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

func (s *fakeSession) end(err error) { s.once.Do(func() { s.err = err; close(s.done) }) }

func (s *fakeSession) send(batch []*request) ([]answer, error) {
	if s.Err() != nil {
		return nil, s.err
	}
	var mine []*fakeAnswer
	var all []answer
	for _, r := range batch {
		a := &fakeAnswer{request: r, ready: make(chan struct{})}
		mine, all = append(mine, a), append(all, a)
	}
	s.batches <- mine
	return all, nil
}

func (s *fakeSession) call(ctx context.Context, r shared) ([]byte, error) {
	a := &fakeAnswer{request: &request{shared: r}, ready: make(chan struct{})}
	s.calls <- a
	return a.Wait(ctx)
}

type outcome struct {
	body string
	err  error
}

// ask puts a request into the lane and returns when it is waiting there.
func ask(t *testing.T, l *lane, body string) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		got, err := l.do(t.Context(), shared{kind: stoapb.Kind_PUT, body: []byte(body), write: true})
		out <- outcome{string(got), err}
	}()
	return out
}

func opened(t *testing.T) (*lane, *fakeSession) {
	l, s := newLane(newMetrics()), newFakeSession()
	ctx, cancel := context.WithCancel(context.Background())
	carried := make(chan struct{})
	go func() { l.carry(ctx, s); close(carried) }()
	t.Cleanup(func() { cancel(); <-carried })
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.s != nil }, time.Minute, time.Millisecond)
	return l, s
}

// TestBatches: what comes while a batch is under way goes with the next.
func TestBatches(t *testing.T) { synctest.Test(t, testBatches) }

func testBatches(t *testing.T) {
	l, s := opened(t)
	first := ask(t, l, "first")
	batch := <-s.batches
	require.Len(t, batch, 1)
	var rest []<-chan outcome
	for i := range 50 {
		rest = append(rest, ask(t, l, fmt.Sprint(i)))
	}
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiting) == 50 }, time.Minute, time.Millisecond)
	batch[0].give(nil)
	require.Equal(t, outcome{"first", nil}, <-first)
	for _, a := range <-s.batches {
		a.give(nil)
	}
	require.Empty(t, s.batches, "it was one batch")
	for i, r := range rest {
		require.Equal(t, outcome{fmt.Sprint(i), nil}, <-r)
	}
}

// TestSlowBatch: nothing waits behind a batch that takes too long.
func TestSlowBatch(t *testing.T) { synctest.Test(t, testSlowBatch) }

func testSlowBatch(t *testing.T) {
	l, s := opened(t)
	slow := ask(t, l, "slow")
	batch := <-s.batches
	behind := ask(t, l, "behind")
	require.ErrorIs(t, (<-behind).err, errNotTaken)
	require.ErrorIs(t, (<-ask(t, l, "later")).err, errNotTaken)
	batch[0].give(nil)
	require.NoError(t, (<-slow).err)
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.sent.IsZero() }, time.Minute, time.Millisecond)
	again := ask(t, l, "again")
	batch = <-s.batches
	require.Len(t, batch, 1, "what was taken back is not sent")
	require.Equal(t, "again", string(batch[0].body))
	batch[0].give(nil)
	require.NoError(t, (<-again).err)
}

// TestSessionEnds: of what was sent the outcome is unknown; the rest was not sent.
func TestSessionEnds(t *testing.T) { synctest.Test(t, testSessionEnds) }

func testSessionEnds(t *testing.T) {
	l, s := opened(t)
	inFlight := ask(t, l, "sent")
	batch := <-s.batches
	waiting := ask(t, l, "waiting")
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiting) == 1 }, time.Minute, time.Millisecond)
	s.end(client.ErrSessionExpired)
	batch[0].give(client.ErrSessionExpired)
	require.ErrorIs(t, (<-inFlight).err, errLost)
	require.ErrorIs(t, (<-waiting).err, errNotTaken)
	require.ErrorIs(t, (<-ask(t, l, "after")).err, errNotTaken)
}

func TestVerdict(t *testing.T) {
	lost := rpctypes.ErrGRPCTimeoutDueToConnectionLost
	behind := status.Error(codes.ResourceExhausted, "stoa: quota of role x exceeded: 1 requests per second on each server")
	forgotten := status.Error(codes.FailedPrecondition, fault.ResultForgotten.Error())
	for _, tc := range []struct {
		err         error
		read, write error
	}{
		{errNotTaken, errNotTaken, errNotTaken},
		{fmt.Errorf("%w: %w", client.ErrSessionExpired, client.ErrNotSent), errNotTaken, errNotTaken},
		{client.ErrOvertaken, errNotTaken, errNotTaken},
		{errLost, errNotTaken, lost},
		{forgotten, lost, lost},
		{behind, errNotTaken, errNotTaken},
		{rpctypes.ErrNoSpace, rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCNoSpace},
		{rpctypes.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
		{context.DeadlineExceeded, status.Error(codes.DeadlineExceeded, "context deadline exceeded"), status.Error(codes.DeadlineExceeded, "context deadline exceeded")},
	} {
		for want, write := range map[error]bool{tc.read: false, tc.write: true} {
			if tc.read == tc.write {
				write = true
			}
			got := verdict(tc.err, write)
			if errors.Is(want, errNotTaken) {
				require.Equal(t, want, got, "%v", tc.err)
				continue
			}
			require.Equal(t, status.Code(want), status.Code(got), "%v", tc.err)
			require.Equal(t, status.Convert(want).Message(), status.Convert(got).Message(), "%v", tc.err)
		}
	}
}

func TestShare(t *testing.T) {
	k, end := []byte("/a/k"), []byte("/a/l")
	put := func(p *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	}
	get := func(r *pb.RangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	}
	del := func(r *pb.DeleteRangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	}
	txn := func(ops ...*pb.RequestOp) *pb.TxnRequest {
		return &pb.TxnRequest{Compare: []*pb.Compare{{Key: k}}, Success: ops}
	}
	for i, tc := range []struct {
		kind  stoapb.Kind
		m     proto.Message
		ok    bool
		write bool
	}{
		{stoapb.Kind_PUT, &pb.PutRequest{Key: k, Value: k, Lease: 7, PrevKv: true}, true, true},
		{stoapb.Kind_PUT, &pb.PutRequest{Value: k}, false, false},
		{stoapb.Kind_PUT, &pb.PutRequest{Key: []byte("/em/program"), Value: k}, false, false},
		{stoapb.Kind_PUT, &pb.PutRequest{Key: k, Value: make([]byte, maxShared)}, false, false},
		{stoapb.Kind_RANGE, &pb.RangeRequest{Key: k}, true, false},
		{stoapb.Kind_RANGE, &pb.RangeRequest{Key: k, Revision: 3, KeysOnly: true}, true, false},
		{stoapb.Kind_RANGE, &pb.RangeRequest{Key: k, RangeEnd: end}, false, false},
		{stoapb.Kind_RANGE, &pb.RangeRequest{Key: k, Serializable: true}, false, false},
		{stoapb.Kind_DELETE_RANGE, &pb.DeleteRangeRequest{Key: k}, true, true},
		{stoapb.Kind_DELETE_RANGE, &pb.DeleteRangeRequest{Key: k, RangeEnd: end}, false, false},
		{stoapb.Kind_TXN, txn(put(&pb.PutRequest{Key: k}), get(&pb.RangeRequest{Key: k})), true, true},
		{stoapb.Kind_TXN, txn(del(&pb.DeleteRangeRequest{Key: k})), true, true},
		{stoapb.Kind_TXN, txn(get(&pb.RangeRequest{Key: k})), true, false},
		{stoapb.Kind_TXN, txn(), true, false},
		{stoapb.Kind_TXN, &pb.TxnRequest{}, false, false},
		{stoapb.Kind_TXN, txn(get(&pb.RangeRequest{Key: k, RangeEnd: end})), false, false},
		{stoapb.Kind_TXN, txn(get(&pb.RangeRequest{Key: k, Serializable: true})), false, false},
		{stoapb.Kind_TXN, txn(del(&pb.DeleteRangeRequest{Key: k, RangeEnd: end})), false, false},
		{stoapb.Kind_TXN, txn(&pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn()}}), false, false},
		{stoapb.Kind_TXN, txn(&pb.RequestOp{}), false, false},
		{stoapb.Kind_TXN, &pb.TxnRequest{Compare: []*pb.Compare{{Key: k, RangeEnd: end}}}, false, false},
	} {
		body, err := proto.Marshal(tc.m)
		require.NoError(t, err)
		r, ok := share(tc.kind, body)
		require.Equal(t, tc.ok, ok, "%d: %v", i, tc.m)
		if ok {
			require.Equal(t, tc.write, r.write, "%d: %v", i, tc.m)
		}
	}
	_, ok := share(stoapb.Kind_TXN, []byte{0xff})
	require.False(t, ok)
}

// TestOrdinary: whatever may mean something to a member needs a call of its own.
func TestOrdinary(t *testing.T) {
	require.True(t, ordinary(metadata.Pairs(":authority", "a", "content-type", "c", "user-agent", "u", "client-api-version", "3.7", "grpc-accept-encoding", "gzip")))
	for _, name := range []string{"token", "authorization", "hasleader", "stoa-client-id", "stoa-lease", "traceparent", "other"} {
		require.False(t, ordinary(metadata.Pairs("client-api-version", "3.7", name, "x")), name)
	}
}
