package compose

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// TestFeedGoesOn: others write all the time, mostly what isn't watched, while a
// client updates in turns in two clusters. The last events are delivered
// nevertheless.
func TestFeedGoesOn(t *testing.T) {
	for _, server := range []string{"stoa", "etcd"} {
		t.Run(server, func(t *testing.T) {
			all := start(t, server, 2, false)
			ctx, cancel := context.WithCancel(t.Context())
			var others sync.WaitGroup
			defer others.Wait()
			defer cancel()
			for i, c := range all {
				cli := dial(t, c.voters...)
				others.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						key := prefix(i) + "b/x"
						if n%4 == 0 {
							key = prefix(i) + "a/x" // watched
						}
						_, _ = cli.Put(ctx, key, "others")
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			for round := range 10 {
				goesOn(t, all, round)
			}
		})
	}
}

func goesOn(t *testing.T, all clusters, round int) {
	c := all.compose(t, func(c *cluster) *process.Server { return c.voters[1] })
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	f := c.NewFeed()
	defer f.Close()
	for i := range all {
		_, err := f.Watch(ctx, prefix(i)+"a/x")
		require.NoError(t, err)
	}
	for n := range 30 {
		_, err := c.Put(ctx, prefix(n%2)+"c/x", fmt.Sprint(n))
		require.NoError(t, err)
	}
	last := fmt.Sprintf("last of %d", round)
	for i := range all {
		_, err := c.Put(ctx, prefix(i)+"a/x", last)
		require.NoError(t, err)
	}
	began := time.Now()
	for left := len(all); left > 0; {
		n, err := f.Next(ctx)
		require.NoError(t, err, "round %d: the feed stands still", round)
		for _, e := range n.Events {
			if string(e.Kv.Value) == last {
				left--
			}
		}
	}
	require.Less(t, time.Since(began), 8*time.Second)
}
