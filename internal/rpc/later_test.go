package rpc

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/audit"
)

// A write whose client doesn't wait for its commit is counted and recorded as one that has ended so,
// once, whatever becomes of it.
func TestWritesThatClientsGiveUp(t *testing.T) {
	reg, m := prometheus.NewRegistry(), new(inMemory)
	log := audit.Open(m, audit.Options{})
	n, conn := serve(t, Options{Metrics: reg, Audit: log})
	commit := make(chan struct{})
	n.commit.Store(&commit)
	kv := pb.NewKVClient(conn)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		for n.last() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("a")})
	require.Equal(t, codes.Canceled, status.Code(err))
	ended := func(code codes.Code) (sum float64) {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				of := map[string]string{}
				for _, l := range m.Label {
					of[l.GetName()] = l.GetValue()
				}
				if f.GetName() == "grpc_server_handled_total" && of["grpc_method"] == "Put" && of["grpc_code"] == code.String() {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	require.Eventually(t, func() bool { return ended(codes.Canceled) == 1 }, time.Minute, time.Millisecond)
	close(commit)
	_, err = kv.Put(testContext(t), &pb.PutRequest{Key: []byte("b")})
	require.NoError(t, err)
	require.EqualValues(t, 1, ended(codes.Canceled))
	require.EqualValues(t, 1, ended(codes.OK))

	lines := m.lines(t, log)
	require.Len(t, lines, 2)
	require.Equal(t, "Canceled", lines[0].Code)
	require.Equal(t, []audit.Range{{Op: "put", Key: "a"}}, lines[0].Keys)
}

// The goroutine that makes all answers has none that may be large.
func TestBriefTransactions(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a")}}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a")}}}
	del := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), PrevKv: true}}}
	many := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")}}}
	all := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("b")}}}
	for _, c := range []struct {
		then, orElse []*pb.RequestOp
		brief        bool
	}{
		{nil, nil, true},
		{[]*pb.RequestOp{put}, []*pb.RequestOp{get}, true}, // an API server's
		{[]*pb.RequestOp{put, put, put, put, put, put}, nil, true},
		{[]*pb.RequestOp{get, get, del, get}, nil, true},
		{[]*pb.RequestOp{get, get, del}, []*pb.RequestOp{get, get}, false},
		{[]*pb.RequestOp{many}, nil, false},
		{nil, []*pb.RequestOp{all}, false},
		{[]*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}}, nil, false},
	} {
		require.Equal(t, c.brief, briefTxn(&pb.TxnRequest{Success: c.then, Failure: c.orElse}), "%v else %v", c.then, c.orElse)
	}
}
