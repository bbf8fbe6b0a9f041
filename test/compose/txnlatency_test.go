package compose

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/compose"
)

// A transaction takes two round trips to its home and the longest of the others: the median is at
// most half a round trip above that, so that another one would show. (The goal, without load on
// the machine, is 1.1 times as much.)
func TestTransactionLatency(t *testing.T) {
	all := startEach(t, "stoa", "etcd", "etcd")
	trips := []time.Duration{100 * time.Millisecond, 60 * time.Millisecond, 20 * time.Millisecond}
	cfg := all.bank()
	for i, d := range trips {
		c := cfg.Clusters[name(i)]
		c.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialFar(ctx, address, d)
		})}
		cfg.Clusters[name(i)] = c
	}
	c, err := compose.New(cfg)
	require.NoError(t, err)
	defer c.Close()
	var took []time.Duration
	for i := range 32 {
		begun := time.Now()
		_, err := c.Txn(t.Context()).Then(
			clientv3.OpPut(fmt.Sprintf("/c0/%d", i), ""), clientv3.OpPut(fmt.Sprintf("/c1/%d", i), ""), clientv3.OpPut(fmt.Sprintf("/c2/%d", i), ""),
		).Commit()
		require.NoError(t, err)
		if i > 0 { // the first connects
			took = append(took, time.Since(begun))
		}
	}
	slices.Sort(took)
	want, median := 2*trips[0]+trips[1], took[len(took)/2]
	t.Logf("p50 %v, %.2f of %v; from %v to %v", median, float64(median)/float64(want), want, took[0], took[len(took)-1])
	require.Less(t, median, want+trips[0]/2)
}

// far is a connection over which each write arrives late: by a round trip, since answers aren't
// delayed.
type far struct {
	net.Conn
	delay time.Duration
	sent  chan parcel
}

type parcel struct {
	due  time.Time
	data []byte
}

func dialFar(ctx context.Context, address string, delay time.Duration) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	f := &far{Conn: conn, delay: delay, sent: make(chan parcel, 1<<12)}
	go func() {
		for p := range f.sent {
			time.Sleep(time.Until(p.due))
			if _, err := conn.Write(p.data); err != nil {
				return
			}
		}
	}()
	return f, nil
}

func (f *far) Write(b []byte) (int, error) {
	f.sent <- parcel{time.Now().Add(f.delay), slices.Clone(b)}
	return len(b), nil
}
