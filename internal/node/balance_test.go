package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/balance"
	"github.com/stoa-kv/stoa/internal/load"
	"github.com/stoa-kv/stoa/internal/placement"
)

// burden makes it look as if keys kept the loops of their partitions busy, until the test ends: the
// loops themselves can't be kept so busy on every machine.
func (c *cluster) burden(n *Node, busy float64, keys [][]byte) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for last := n.clock(); ctx.Err() == nil; {
			_ = n.pause(ctx, 10*time.Millisecond)
			now := n.clock()
			where := n.core.Load().machine.Placement()
			for _, key := range keys {
				n.load.Worked(where.Partition(key), int64(busy*float64(now-last))/int64(len(keys)))
				at := where.Spot(key)
				n.load.Sample(&at, 10)
			}
			last = now
		}
	})
	return func() { cancel(); running.Wait() }
}

// keysIn are keys of so many directories that lie in one partition.
func keysIn(where *placement.Map, partition, n int) (keys [][]byte) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Appendf(nil, "/hot/%d/k", i); where.Partition(key) == partition {
			keys = append(keys, key)
		}
	}
	return keys
}

// The leader's balancer spreads the load of a partition, on all servers, and no key is lost. What
// it does is counted; a server whose balancer is off moves nothing, but tells what it would.
func TestBalancerSpreadsALoad(t *testing.T) {
	c := newCluster(t, 3, 4)
	c.ready()
	keys := keysIn(placement.New(4), 2, 24)
	for i, key := range keys {
		c.put(i%3, string(key), fmt.Sprint(i))
	}
	var leader *Node
	require.Eventually(t, func() bool {
		for _, n := range c.nodes {
			if n.core.Load().replica.Leading() {
				leader = n
			}
		}
		return leader != nil
	}, 10*time.Second, time.Millisecond)
	defer c.burden(leader, 0.9, keys)()

	var d balance.Decision
	require.Eventually(t, func() bool {
		var err error
		d, err = c.nodes[0].Balance(context.Background(), true)
		require.NoError(t, err)
		return len(d.Moves) > 0
	}, 30*time.Second, 50*time.Millisecond, "%s", d.Why)
	require.Positive(t, d.Keys())
	require.Contains(t, d.Moves[0].Prefix, "/hot/")
	require.Zero(t, leader.Counts().Decisions, "it is off")
	require.False(t, leader.State().Moving)

	b := balancer{n: leader}
	require.Eventually(t, func() bool {
		b.step()
		return leader.Counts().Decisions == 1
	}, 30*time.Second, balance.Interval/10, "a step at each interval")
	c.arrived()
	for i, n := range c.nodes {
		count := map[int]int{}
		for k, key := range keys {
			count[n.core.Load().machine.Placement().Partition(key)]++
			require.Equal(t, fmt.Sprint(k), string(c.get(i, string(key), "").Kvs[0].Value))
		}
		for p := range 4 {
			require.InDelta(t, 6, count[p], 2, "directories of partition %d: %v", p, count)
		}
	}
	require.Positive(t, leader.Counts().SlotsMoved)
}

// Keys of slots are counted whether they are flat or in directories, over several pieces.
func TestKeysOfSlotsAreCounted(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	want := [2][placement.Slots]int{}
	core := c.nodes[0].core.Load()
	where := core.machine.Placement()
	for i := 0; i < 3*piece; i += 100 {
		txn := &pb.TxnRequest{}
		for k := i; k < i+100; k++ {
			key := fmt.Appendf(nil, "/d/%d/%d", k%7, k)
			if k%3 == 0 {
				key = fmt.Appendf(nil, "flat-%d", k)
			}
			want[where.Partition(key)][where.Slot(key)]++
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}})
		}
		_, err := c.nodes[0].Txn(context.Background(), txn)
		require.NoError(t, err)
	}
	for p := range want {
		require.Equal(t, want[p], *core.keysOf(p, where))
	}
}

// The balancer stands still where it must not act: with one partition, beside a transit.
func TestBalancerStandsStill(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.ready()
	d, err := c.nodes[0].Balance(context.Background(), false)
	require.NoError(t, err)
	require.Equal(t, "there is one partition", d.Why)

	c = newCluster(t, 1, 2, func(c *Config) { c.StepPause = time.Hour })
	c.ready()
	for i := range 2 * leastStepKeys {
		c.put(0, fmt.Sprintf("/m/%d/k", i), "v")
	}
	c.gather(0, `"/m/"`)
	require.Eventually(t, func() bool { return c.nodes[0].State().Moving }, time.Minute, time.Millisecond)
	d, err = c.nodes[0].Balance(context.Background(), false)
	require.NoError(t, err)
	require.Equal(t, "keys are being moved between partitions", d.Why)
}

// What the loops do is measured: puts to one directory make it the hottest prefix of the busiest
// partition.
func TestLoadIsMeasured(t *testing.T) {
	c := newCluster(t, 1, 4)
	c.ready()
	n := c.nodes[0]
	home := n.core.Load().machine.Placement().Partition([]byte("/hot/dir/k"))
	require.Eventually(t, func() bool {
		for i := range 50 {
			c.put(0, fmt.Sprintf("/hot/dir/%d", i), "v")
		}
		s := n.State().Partitions[home]
		return s.Load > 0 && s.Worked > 0 && s.Bytes > 50 && len(s.Hottest) > 0 && s.Hottest[0] == (load.Prefix{Prefix: "/hot/dir/", Load: s.Hottest[0].Load}) && s.Hottest[0].Load > 0
	}, 30*time.Second, time.Millisecond)
}
