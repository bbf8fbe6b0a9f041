package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

func (c *cluster) place(i int, w command.Wish) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for again := false; ; again = true {
		err := c.nodes[i].Place(ctx, w)
		switch {
		case err != nil && fault.Passing(err) && ctx.Err() == nil: // another leader, or what is on its way takes longer than a request may
		case again && w.Op == command.Unpin && errors.Is(err, fault.BadPlacement):
			return nil // an earlier try has had its effect
		default:
			return err
		}
	}
}

// arrived waits until no keys are on their way any more on any server.
func (c *cluster) arrived() {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		for _, n := range c.nodes {
			if n.State().Moving {
				return false
			}
		}
		return true
	}, 60*time.Second, 10*time.Millisecond)
}

// Keys move and are pinned by wishes to any server, one after the other without waiting;
// clients find them all the time, and so they do after a restart of all servers.
func TestWishes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3)
	c.ready()
	const keys = 600
	for i := range keys {
		c.put(i%3, fmt.Sprintf("/w/%d/k", i%20), fmt.Sprint(i))
		c.put(i%3, fmt.Sprintf("flat-%d", i), "v")
	}
	before := c.get(0, "/w/", "/w0")
	for to := range 3 {
		require.NoError(t, c.place(to, command.Wish{Op: command.MoveSlot, Key: "/w/7/", Partition: to}))
		require.NoError(t, c.place((to+1)%3, command.Wish{Op: command.Pin, Key: "/w/", Partition: to}), "it waits for the first one")
		if to < 2 {
			require.NoError(t, c.place((to+2)%3, command.Wish{Op: command.Unpin, Key: "/w/"}))
		}
		require.Len(t, c.get(to, "flat-", "flat.").Kvs, keys)
	}
	require.ErrorIs(t, c.place(0, command.Wish{Op: command.MoveSlot, Key: "/w/7/", Partition: 1}), fault.BadPlacement, "it is pinned")
	require.ErrorIs(t, c.place(0, command.Wish{Op: command.Pin, Key: "/w/", Partition: 1 << 20}), fault.BadPlacement)
	c.arrived()
	check := func() {
		for i := range c.nodes {
			got := c.get(i, "/w/", "/w0")
			require.Len(t, got.Kvs, len(before.Kvs))
			for n := range before.Kvs {
				require.Equal(t, before.Kvs[n].String(), got.Kvs[n].String())
			}
			require.Equal(t, []Pin{{"/w/", 2}}, c.nodes[i].Pins())
			m := c.nodes[i].current().machine.Placement()
			for d := range 20 {
				require.Equal(t, 2, m.Partition(fmt.Appendf(nil, "/w/%d/k", d)))
			}
		}
	}
	check()
	for i := range c.nodes {
		c.stop(i)
		c.start(i)
	}
	c.ready()
	check()
	require.NoError(t, c.place(1, command.Wish{Op: command.Unpin, Key: "/w/"}))
	c.arrived()
	require.Len(t, c.get(2, "/w/", "/w0").Kvs, len(before.Kvs))
	require.Equal(t, c.hash(0, 0), c.hash(1, 0))
}

// BenchmarkMoveSlot is how long the keys of one slot, a directory of 1,000 of a million keys,
// take to another partition, and what puts notice while that goes on and on, and while there is such a
// move in each half of a second, beside what they take otherwise, in five rounds. The others are flat, or in directories of 1,000.
func BenchmarkMoveSlot(b *testing.B) {
	for _, tc := range []struct {
		name, format string
		servers      int
	}{{"flat", "key-%[2]d", 1}, {"directories", "/d/%[1]d/k%[2]d", 1}, {"directories, three servers", "/d/%[1]d/k%[2]d", 3}} {
		b.Run(tc.name, func(b *testing.B) {
			c := newCluster(b, tc.servers, 4)
			c.ready()
			c.agreed(version.Newest)
			fill := func(n int, key func(i int) []byte) {
				for i := 0; i < n; i += 100 {
					txn := &pb.TxnRequest{}
					for k := i; k < i+100; k++ {
						put := &pb.PutRequest{Key: key(k), Value: []byte("value")}
						txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
					}
					_, err := c.nodes[0].Txn(context.Background(), txn)
					require.NoError(b, err)
				}
			}
			fill(999_000, func(i int) []byte { return fmt.Appendf(nil, tc.format, i/1000, i) })
			fill(1000, func(i int) []byte { return fmt.Appendf(nil, "/hot/dir/%d", i) })
			to := 0
			move := func() {
				to = (to + 1) % 4
				require.NoError(b, c.place(0, command.Wish{Op: command.MoveSlot, Key: "/hot/dir/", Partition: to}))
				for c.nodes[0].State().Moving {
					time.Sleep(time.Millisecond)
				}
			}
			for b.Loop() {
				move()
			}
			moves := func(each time.Duration) {
				for began := time.Now(); time.Since(began) < 2*time.Second; {
					next := time.Now().Add(each)
					move()
					time.Sleep(time.Until(next))
				}
			}
			took := map[string][]time.Duration{}
			for range 5 {
				for when, do := range map[string]func(){
					"quiet":            func() { time.Sleep(2 * time.Second) },
					"each-half-second": func() { moves(time.Second / 2) },
					"moving":           func() { moves(0) },
				} {
					took[when] = append(took[when], putsWhile(b, c.nodes[0], do)...)
				}
			}
			for when, all := range took {
				slices.Sort(all)
				report(b, when, all)
			}
		})
	}
}
