package node

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// BenchmarkEngine measures a single server without gRPC: the log, the groups,
// apply, the stores, and the waiting for answers. Run it as
//
//	go test ./internal/node -run '^$' -bench Engine -cpu 1,2
//
// and compare P=1 on one core with P=2 on two.
func BenchmarkEngine(b *testing.B) {
	for _, partitions := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("put/P=%d", partitions), func(b *testing.B) {
			n := benchNode(b, partitions)
			var next atomic.Int64
			value := make([]byte, 256)
			parallel(b, func() error {
				i := next.Add(1)
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: benchKey(i), Value: value})
				return err
			})
		})
		b.Run(fmt.Sprintf("get/P=%d", partitions), func(b *testing.B) {
			n := benchNode(b, partitions)
			for i := range int64(100) {
				txn := &pb.TxnRequest{}
				for k := range int64(100) {
					put := &pb.PutRequest{Key: benchKey(100*i + k), Value: make([]byte, 256)}
					txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
				}
				_, err := n.Txn(context.Background(), txn)
				require.NoError(b, err)
			}
			var next atomic.Int64
			parallel(b, func() error {
				_, err := n.Range(context.Background(), &pb.RangeRequest{Key: benchKey(next.Add(1))})
				return err
			})
		})
	}
}

// BenchmarkReadsBesideWrites measures strict reads of one partition that is written to as
// well, by every sixteenth operation: a get, and a range of a directory of 100 keys.
func BenchmarkReadsBesideWrites(b *testing.B) {
	key := func(i int64) []byte { return fmt.Appendf(nil, "/d/e/key%03d", i%100) }
	for name, ask := range map[string]func(i int64) *pb.RangeRequest{
		"get":   func(i int64) *pb.RangeRequest { return &pb.RangeRequest{Key: key(i)} },
		"range": func(int64) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte("/d/e/"), RangeEnd: []byte("/d/e0")} },
	} {
		b.Run(name, func(b *testing.B) {
			n := benchNode(b, 2)
			put := func(i int64) error {
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: key(i), Value: make([]byte, 256)})
				return err
			}
			for i := range int64(100) {
				require.NoError(b, put(i))
			}
			var next atomic.Int64
			parallel(b, func() error {
				i := next.Add(1)
				if i%16 == 0 {
					return put(i)
				}
				_, err := n.Range(context.Background(), ask(i))
				return err
			})
		})
	}
}

func benchKey(i int64) []byte { return fmt.Appendf(nil, "/bench/dir%02d/key%06d", i%64, i%10_000) }

func benchNode(b *testing.B, partitions int) *Node {
	n, err := Start(Config{
		ID: 1, ClusterID: 1, Members: []*pb.Member{{ID: 1}},
		DataDir: b.TempDir(), Partitions: partitions,
		Fatal: func(err error) { panic(err) },
	})
	require.NoError(b, err)
	<-n.Ready()
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.NoError(b, n.Stop(ctx))
	})
	return n
}

// parallel runs op from 512 goroutines.
func parallel(b *testing.B, op func() error) {
	b.ReportAllocs()
	b.SetParallelism(512 / runtime.GOMAXPROCS(0))
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if err := op(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
