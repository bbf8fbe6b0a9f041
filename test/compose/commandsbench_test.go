package compose

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// BenchmarkCommands measures commands per second, from the first Send to the last Done: each puts
// a key of 100 bytes in both of two clusters. The clients have a queue's client each, and send without
// waiting.
func BenchmarkCommands(b *testing.B) {
	const clients = 4
	value := string(make([]byte, 100))
	for _, servers := range benchPairs {
		b.Run(servers[0]+" and "+servers[1], func(b *testing.B) {
			all := startForBench(b, servers...)
			c := all.queueing(b)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.CarryOut(ctx, compose.CarryOutOptions{}) }()
			var queues []*compose.Commands
			for range clients {
				q, err := c.Fork().Commands()
				require.NoError(b, err)
				defer q.Close()
				require.NoError(b, q.Send(clientv3.OpPut("/c0/begin", "")).Done(b.Context()))
				queues = append(queues, q)
			}
			b.ResetTimer()
			last := make([]*compose.CommandFuture, clients)
			for n := range b.N {
				key := fmt.Sprint(n % 100_000)
				last[n%clients] = queues[n%clients].Send(clientv3.OpPut("/c0/"+key, value), clientv3.OpPut("/c1/"+key, value))
			}
			for _, f := range last[:min(clients, b.N)] {
				require.NoError(b, f.Done(b.Context()))
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
			cancel()
			require.NoError(b, <-ended)
		})
	}
}
