package compose

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/compose/osc"
	"github.com/stoa-kv/stoa/test/process"
)

// The execution of the paper's Figure 1. Client 1 writes x in the first cluster and then
// reads y in the second; client 2 writes y and then reads x. Each one's near member in
// the cluster that it reads from lags: it is stopped while the writes happen, and the
// reads are with it when it goes on.
func TestFigure1(t *testing.T) {
	for _, server := range []string{"stoa", "etcd"} {
		t.Run(server, func(t *testing.T) {
			all := start(t, server, 2, false)
			t.Run("without syncs it happens", func(t *testing.T) {
				var v *osc.Violation
				for try := range 20 {
					err := all.figure1(t, orderPerCluster)
					if errors.As(err, &v) {
						t.Logf("at attempt %d: %v", try+1, v)
						return
					}
					require.NoError(t, err)
				}
				t.Error("not once in 20 attempts: the members did not lag, or the checker is blind")
			})
			t.Run("with syncs it does not", func(t *testing.T) {
				for range 5 {
					require.NoError(t, all.figure1(t, oneOrder))
				}
			})
		})
	}
}

// figure1 is one attempt, on keys of its own.
func (all clusters) figure1(t *testing.T, order func(*compose.Client, int) []*compose.Client) error {
	h := osc.NewHistory()
	object := fmt.Sprint(time.Now().UnixNano())
	lagging := []*process.Server{all[0].follower(t), all[1].follower(t)}
	clients := make([]*worker, 2)
	for i := range clients {
		// Client i works beside a leader in cluster i, and beside the member that lags in
		// the other.
		c := all.compose(t, func(c *cluster) *process.Server {
			if c == all[i] {
				return c.leader(t)
			}
			return lagging[1-i]
		})
		defer c.Close()
		clients[i] = &worker{id: i, by: order(c, 2), h: h, clusters: 2}
		for _, cluster := range []int{1 - i, i} {
			<-clients[i].get(prefix(cluster) + object) // the connections stand
		}
	}
	for _, s := range lagging {
		require.NoError(t, s.Pause())
		defer s.Resume()
	}
	var writes, reads []<-chan struct{}
	for i, w := range clients {
		writes = append(writes, w.put(prefix(i)+object))
	}
	for i, w := range clients {
		<-writes[i]
		reads = append(reads, w.get(prefix(1-i)+object))
	}
	time.Sleep(20 * time.Millisecond) // the requests are in the sockets
	for _, s := range lagging {
		require.NoError(t, s.Resume())
	}
	for i, r := range reads {
		<-r
		require.Empty(t, clients[i].errs)
	}
	return all.check(t, h)
}
