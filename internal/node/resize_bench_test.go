package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/version"
)

// BenchmarkResize measures puts of 4 clients on three servers while the number of partitions goes
// from 1 to 4 and back to 2, beside those of a quiet time before. The longest one is the pause, which
// must not depend on the number of keys; p99 is over the changes, with all moves of keys.
func BenchmarkResize(b *testing.B) {
	for _, keys := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			c := newCluster(b, 3, 1)
			c.ready()
			c.agreed(version.Newest)
			fillDirectories(b, c.nodes[0], keys)
			time.Sleep(2 * time.Second)
			for b.Loop() {
				quiet := putsWhile(b, c.nodes[0], func() { time.Sleep(2 * time.Second) })
				report(b, "quiet", quiet)
				for _, to := range []int{4, 2} {
					took := time.Now()
					busy := putsWhile(b, c.nodes[0], func() {
						require.NoError(b, c.nodes[0].Resize(context.Background(), to))
						for c.nodes[0].State().Moving {
							time.Sleep(10 * time.Millisecond)
						}
					})
					report(b, fmt.Sprintf("to%d", to), busy)
					b.ReportMetric(time.Since(took).Seconds(), fmt.Sprintf("to%d-s", to))
				}
				require.NoError(b, c.nodes[0].Resize(context.Background(), 1))
			}
		})
	}
}

func fillDirectories(b *testing.B, n *Node, keys int) {
	for i := 0; i < keys; {
		txn := &pb.TxnRequest{}
		for range 100 {
			put := &pb.PutRequest{Key: fmt.Appendf(nil, "/fill/dir%04d/key%03d", i/1000, i%1000), Value: make([]byte, 32)}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
			i++
		}
		_, err := n.Txn(context.Background(), txn)
		require.NoError(b, err)
	}
}

// putsWhile are the durations of puts while something goes on, in order.
func putsWhile(b *testing.B, n *Node, do func()) (all []time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	lists := make([][]time.Duration, 4)
	for w := range lists {
		writers.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				began := time.Now()
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: fmt.Appendf(nil, "/load/%d/key%d", w, k%100), Value: make([]byte, 32)})
				lists[w] = append(lists[w], time.Since(began))
				if err != nil {
					b.Log(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	do()
	cancel()
	writers.Wait()
	all = slices.Concat(lists...)
	slices.Sort(all)
	return all
}

// report reports the 99th percentile and the longest of durations in order.
func report(b *testing.B, when string, sorted []time.Duration) {
	last := len(sorted) - 1
	b.ReportMetric(1000*sorted[last*99/100].Seconds(), when+"-p99-ms")
	b.ReportMetric(1000*sorted[last].Seconds(), when+"-max-ms")
}
