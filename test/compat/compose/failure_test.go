package compose

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

// TestCutOff stops a cluster: requests to it fail, within the timeout, with an
// error that names it; requests to the other don't. All asynchronous requests
// to it fail too, and those sent after them to the other cluster take effect.
func TestCutOff(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		e.put("/eu/a", "")
		e.put("/us/a", "")
		require.NoError(t, e.us.Servers[0].Pause())
		t.Cleanup(func() { _ = e.us.Servers[0].Resume() })

		var lost, behind []*client.Future[*clientv3.PutResponse]
		for i := range 10 {
			lost = append(lost, e.PutAsync("/us/lost", fmt.Sprint(i)))
		}
		for range 10 {
			behind = append(behind, e.PutAsync("/eu/behind", ""))
		}
		for range 10 {
			lost = append(lost, e.PutAsync("/us/lost", "late"))
		}
		began := time.Now()
		for _, f := range lost {
			_, err := f.Wait(e.ctx)
			var in *compose.ClusterError
			require.ErrorAs(t, err, &in)
			require.Equal(t, "us", in.Cluster)
		}
		for _, f := range behind {
			_, err := f.Wait(e.ctx)
			require.NoError(t, err)
		}
		require.Less(t, time.Since(began), 6*time.Second)

		short, cancel := context.WithTimeout(e.ctx, 300*time.Millisecond)
		defer cancel()
		began = time.Now()
		_, err := e.Get(short, "/us/a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), e.cfg.Timeout, "it waits for nothing else")

		r := <-e.Watch(e.ctx, "/us/a")
		var in *compose.ClusterError
		require.ErrorAs(t, r.Err(), &in)
		require.Equal(t, "us", in.Cluster)

		other := e.Fork()
		t.Cleanup(func() { _ = other.Close() })
		began = time.Now()
		_, err = other.Put(e.ctx, "/eu/a", "")
		require.NoError(t, err)
		require.Less(t, time.Since(began), e.cfg.Timeout, "it waits for nothing else")

		require.NoError(t, e.us.Servers[0].Resume())
		require.Eventually(t, func() bool {
			_, err := e.Put(e.ctx, "/us/a", "back")
			return err == nil
		}, 20*time.Second, 100*time.Millisecond)
		require.Equal(t, "back", string(e.get("/us/a").Kvs[0].Value))
		got := e.get("/us/lost")
		if len(got.Kvs) > 0 {
			require.NotEqual(t, "late", string(got.Kvs[0].Value), "there is no gap: what fails takes all behind it along")
		}
	})
}

// TestLosingTheNearMember kills, and pauses, the member that serves the local
// reads, while another client writes: reads never go back.
func TestLosingTheNearMember(t *testing.T) {
	pairs(t, 3, func(t *testing.T, e *env) {
		near := e.us.Servers[2]
		c := e.client(func(cfg *compose.Config) {
			us := cfg.Clusters["us"]
			us.Near = []string{near.ClientURL}
			cfg.Clusters["us"] = us
		})
		writer := e.direct(e.us)
		writer.SetEndpoints(e.us.Endpoints()[:2]...) // a put through one that is paused would wait, and others with it
		stop := make(chan struct{})
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, _ = writer.Put(e.ctx, "/n", fmt.Sprintf("%08d", i))
			}
		}()
		last, reads := "", 0
		// read reads until that has brought something new, and for a while no error.
		read := func(what string) {
			var since time.Time
			for limit := time.Now().Add(20 * time.Second); since.IsZero() || time.Since(since) < time.Second; reads++ {
				require.True(t, time.Now().Before(limit), "no member serves %s", what)
				got, err := c.Get(e.ctx, "/us/n")
				if err != nil || len(got.Kvs) == 0 {
					since = time.Time{}
					continue
				}
				value := string(got.Kvs[0].Value)
				require.GreaterOrEqual(t, value, last)
				if since.IsZero() && value > last {
					since = time.Now()
				}
				last = value
			}
			_, err := c.Get(e.ctx, "/us/n")
			require.NoError(t, err, what)
		}
		read("at first")
		require.NoError(t, near.Pause())
		read("in the paused member's place")
		require.NoError(t, near.Resume())
		read("when it is back")
		require.NoError(t, near.Kill())
		read("when it is dead")
		close(stop)
		<-wrote
		t.Logf("%d reads up to %s: %+v", reads, last, c.Stats())
	})
}
