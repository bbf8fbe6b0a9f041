package compose

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// locked is a member with so many locks, all of transactions that are pending.
type locked struct {
	pb.UnimplementedKVServer
	locks int
	away  int // the first so many are of transactions of cluster 8

	mu    sync.Mutex
	asked map[string]bool // records
}

func (l *locked) Range(_ context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	a := &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 1}}
	for i := range l.locks {
		key := fmt.Appendf(nil, "%sk%04d", commit.LockPrefix, i)
		switch {
		case q.CountOnly || string(key) < string(q.Key):
		case int64(len(a.Kvs)) == q.Limit:
			a.More = true
			return a, nil
		default:
			home := 7
			if i < l.away {
				home = 8
			}
			value := fmt.Appendf(nil, `{"txn":"t%d","home":%d}`, i, home)
			a.Kvs = append(a.Kvs, &mvccpb.KeyValue{Key: key, Value: value, ModRevision: 1})
		}
	}
	return a, nil
}

func (l *locked) Txn(_ context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := q.Success[0].GetRequestRange().Key
	l.asked[string(key)] = true
	kv := &mvccpb.KeyValue{Key: key, Value: []byte(`{"phase":"pending"}`), ModRevision: 1}
	return &pb.TxnResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 1}, Succeeded: true,
		Responses: []*pb.ResponseOp{responseOf(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}}),
			{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Succeeded: true}}}}}, nil
}

// All that has been left behind is looked at, though it is more than one look has.
func TestSweepOfMany(t *testing.T) {
	l := &locked{locks: 2*sweepMost + 1, asked: map[string]bool{}}
	c := over(t, serve(t, func(g *grpc.Server) { pb.RegisterKVServer(g, l) }))
	s := newSweep(c.shared.locker)
	for range 2 * 3 {
		s.look(t.Context(), s.clusters[0], &s.parts[0])
	}
	require.Len(t, l.asked, l.locks)
	clear(l.asked)
	for range 2 {
		s.look(t.Context(), s.clusters[0], &s.parts[0])
	}
	require.Len(t, l.asked, sweepMost, "it begins anew")

	l.locks = 3
	s = newSweep(c.shared.locker)
	for range 3 {
		clear(l.asked)
		s.look(t.Context(), s.clusters[0], &s.parts[0])
	}
	require.Len(t, l.asked, 3, "each look but the first")
}

// A cluster that keeps silent is waited for once in each look, and not for each lock of its transactions: those of others would stay for as long.
func TestSweepBesideASilentCluster(t *testing.T) {
	t.Parallel()
	const timeout = patience
	l := &locked{locks: 31, away: 30, asked: map[string]bool{}}
	c := besideSilent(t, timeout, func(g *grpc.Server) { pb.RegisterKVServer(g, l) })
	s := newSweep(c.shared.locker)
	began := time.Now()
	for range 2 {
		s.once(t.Context())
	}
	require.Equal(t, map[string]bool{commit.RecordPrefix + "t30": true}, l.asked)
	require.Less(t, time.Since(began), 10*timeout)
}

// committed is a member with records of transactions whose clients have died when they had committed, and completed all but
// the record. Their leases have expired.
type committed struct {
	pb.UnimplementedKVServer
	mu      sync.Mutex
	records map[string]string
}

func (m *committed) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 1}}
	for _, key := range slices.Sorted(maps.Keys(m.records)) {
		a.Kvs = append(a.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: []byte(m.records[key]), ModRevision: 1})
	}
	return a, nil
}

func (m *committed) Txn(_ context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &pb.TxnResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 1}, Succeeded: true}
	switch op := q.Success[0].Request.(type) {
	case *pb.RequestOp_RequestPut:
		return nil, rpctypes.ErrGRPCLeaseNotFound
	case *pb.RequestOp_RequestDeleteRange:
		delete(m.records, string(op.RequestDeleteRange.Key))
	case *pb.RequestOp_RequestRange:
		kv := &mvccpb.KeyValue{Key: op.RequestRange.Key, Value: []byte(m.records[string(op.RequestRange.Key)]), ModRevision: 1}
		a.Responses = append(a.Responses, responseOf(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}}))
	}
	a.Responses = append(a.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Succeeded: true}}})
	return a, nil
}

// That the lease of a client that has died is not found is an answer: what it has committed is completed, its record removed.
func TestSweepOfTheDead(t *testing.T) {
	m := &committed{records: map[string]string{}}
	for i := range sweepMost {
		m.records[fmt.Sprintf("%st%d", commit.RecordPrefix, i)] = `{"phase":"committed","lease":9,"parts":[{"cluster":7,"locked":["aw=="]}]}`
	}
	c := over(t, serve(t, func(g *grpc.Server) { pb.RegisterKVServer(g, m) }))
	s := newSweep(c.shared.locker)
	began := time.Now()
	for range 2 {
		s.once(t.Context())
	}
	require.Empty(t, m.records)
	require.Less(t, time.Since(began), sweepMost*10*time.Millisecond, "it pauses behind each")
}

// Who meets a lock of a transaction whose home is in no cluster of the composition is told which lock that is, and where.
func TestLockOfATransactionOfOthers(t *testing.T) {
	l := &locked{locks: 1, away: 1, asked: map[string]bool{}}
	c := over(t, serve(t, func(g *grpc.Server) { pb.RegisterKVServer(g, l) }))
	of := c.shared.clusters[0]
	for _, of := range c.shared.clusters {
		_, err := of.identity(t.Context())
		require.NoError(t, err)
	}
	a, err := l.Range(t.Context(), &pb.RangeRequest{Limit: 1})
	require.NoError(t, err)
	err = c.shared.locker.resolve(t.Context(), 0, metIn(of, a.Kvs), 0)
	require.ErrorIs(t, err, errNoCluster)
	require.EqualError(t, err, `compose: cluster "a": /stoa/txn/lock/k0000 is of transaction t0: `+
		`compose: the home of a transaction, or a cluster with a part of it, is none of the composition's (cluster ID 8)`)
}
