//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// The members change a hundred times in a row, while servers are paused: none of the acknowledged
// writes is lost. The checks in front of changes are off, since they want members that have been
// connected for five seconds, so this is bolder than an operator would be.
func TestHundredChanges(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 100))
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 4, Args: []string{"--strict-reconfig-check=false"}})
	r := &roster{t: t, c: c}
	w := &writes{acked: map[string]int64{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() { w.drive(ctx, i, r.endpoints) })
	}
	work.Go(func() { r.pauseServers(ctx, rand.New(rand.NewPCG(seed, 101))) })
	began := time.Now()
	for changes := 0; changes < 100; {
		name := fmt.Sprintf("m%d", changes)
		switch n := len(c.Servers); {
		case n < 3 || n < 5 && rnd.IntN(2) == 0:
			if rnd.IntN(2) == 0 {
				changes++
				r.join(name)
			} else {
				changes += 2
				r.learn(name)
			}
		case rnd.IntN(2) == 0:
			changes++
			r.shrink()
		default:
			changes++
			gone := c.Servers[rnd.IntN(n)].Name
			r.remove(gone, r.idOf(gone))
		}
	}
	t.Logf("the changes took %v", time.Since(began).Round(time.Second))
	cancel()
	work.Wait()
	t.Logf("%d acknowledged writes have to be there", len(w.acked))
	for _, s := range c.Servers {
		w.check(t, s, nil)
		require.Len(t, listOf(t, s), len(c.Servers))
	}
}

func (r *roster) endpoints() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.c.Endpoints()
}

// pauseServers stops one server after the other for a while.
func (r *roster) pauseServers(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		r.mu.Lock()
		s := r.c.Servers[rnd.IntN(len(r.c.Servers))]
		r.mu.Unlock()
		if s.Pause() != nil {
			continue // it has ended
		}
		time.Sleep(time.Duration(100+rnd.IntN(1400)) * time.Millisecond)
		_ = s.Resume()
	}
}

func (r *roster) idOf(name string) (id uint64) {
	r.t.Helper()
	r.ask("looking for "+name, func(ctx context.Context, cli *clientv3.Client) error {
		list, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if m.Name == name {
				id = m.ID
				return nil
			}
		}
		return fmt.Errorf("%s is not in the list", name)
	})
	return id
}

// learn adds a learner and promotes it.
func (r *roster) learn(name string) {
	r.t.Helper()
	s := r.joinAs(name, func(ctx context.Context, cli *clientv3.Client, url string) error {
		_, err := cli.MemberAddAsLearner(ctx, []string{url})
		return err
	})
	id := r.idOf(s.Name)
	r.ask("promoting "+name, func(ctx context.Context, cli *clientv3.Client) error {
		_, err := cli.MemberPromote(ctx, id)
		if err != nil && strings.Contains(err.Error(), "can only promote a learner member") && !strings.Contains(err.Error(), "in sync") {
			return nil // it has been
		}
		return err
	})
}
