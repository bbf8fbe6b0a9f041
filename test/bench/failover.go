package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stoa-kv/stoa/test/process"
)

// Of the load on which a leader is killed.
const (
	failoverNodes = 3
	failoverGap   = 2 * time.Millisecond // between two puts
	failoverLimit = 20 * time.Second     // for the next leader
	failoverCalm  = time.Second          // of puts that are answered, before and after
)

// measureFailover kills leaders and measures for how long no write is
// acknowledged.
func measureFailover(p *plan) (s section, err error) {
	both, done, err := p.pair(failoverNodes, subject{}, subject{})
	if err != nil {
		return s, err
	}
	defer func() { done(&err) }()
	rounds := 5 * p.rounds
	if p.quick {
		rounds = 1
	}
	gaps := make([]durations, len(both))
	for range rounds {
		for i, b := range both {
			gap, err := failover(b.cluster)
			if err != nil {
				return s, fmt.Errorf("%s: %w", b.subject.name, err)
			}
			gaps[i] = append(gaps[i], gap)
		}
	}
	s.rows = [][]string{{"server", "median", "least", "most"}}
	for i, b := range both {
		row := []string{b.subject.name, round(gaps[i].median()).String(), round(slices.Min(gaps[i])).String(), round(slices.Max(gaps[i])).String()}
		s.rows = append(s.rows, row)
		fmt.Fprintln(os.Stderr, strings.Join(row, "  "))
	}
	// The failovers of the two servers are independent: medians are compared,
	// not rounds.
	own, base := gaps[1].median(), gaps[0].median()
	s.verdicts = []verdict{{goal: "failover, leader killed: time without acknowledged writes, beside etcd", asked: "≤ 1.00x",
		measured: fmt.Sprintf("%s: %v beside %v", ratioText(float64(own)/float64(base)), gaps[1], gaps[0]), missed: own > base}}
	s.text = fmt.Sprintf("%d nodes, heartbeats and elections by default (100 ms, 1 s) on both; a put every %v to each server in turn, regardless of the outcome of earlier ones. "+
		"The leader is killed with -9; the result is the longest time between two acknowledgements from then on. %d rounds.", failoverNodes, failoverGap, rounds)
	return s, nil
}

// acks is when writes were acknowledged.
type acks struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (a *acks) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.longest = max(a.longest, now.Sub(a.last))
	a.last = now
}

// reset begins anew.
func (a *acks) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.longest, a.last = 0, time.Now()
}

// flowing reports whether writes have been acknowledged lately.
func (a *acks) flowing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.last) < 50*time.Millisecond
}

// failover kills the leader of a cluster under load, returns how long the longest gap
// between two acknowledged writes was, and restores the cluster.
func failover(c *process.Cluster) (time.Duration, error) {
	old, err := leader(c)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &acks{}
	a.reset()
	stop, err := putSteadily(ctx, c, a)
	if err != nil {
		return 0, err
	}
	defer stop()
	time.Sleep(failoverCalm)
	a.reset()
	if err := old.Kill(); err != nil {
		return 0, err
	}
	killed, calm := time.Now(), time.Time{}
	for calm.IsZero() || time.Since(calm) < failoverCalm {
		switch {
		case time.Since(killed) > failoverLimit:
			return 0, fmt.Errorf("no writes within %v of the leader's death", failoverLimit)
		case !a.flowing() || time.Since(killed) < failoverCalm/2:
			calm = time.Time{}
		case calm.IsZero():
			calm = time.Now()
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	stop()
	if err := c.Restart(context.Background(), old); err != nil {
		return 0, err
	}
	time.Sleep(failoverCalm)
	return a.longest, nil
}

// putSteadily puts to each server in turn. Puts that fail are not repeated: the next
// ones are on their way anyhow.
func putSteadily(ctx context.Context, c *process.Cluster, a *acks) (stop func(), err error) {
	var kvs []pb.KVClient
	var conns []*grpc.ClientConn
	for _, s := range c.Servers {
		conn, err := grpc.NewClient(address(s), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", s.Name, err)
		}
		conns = append(conns, conn)
		kvs = append(kvs, pb.NewKVClient(conn))
	}
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(failoverGap)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			kv, key := kvs[i%len(kvs)], []byte(keyName(i%1000))
			all.Go(func() {
				if _, err := kv.Put(ctx, &pb.PutRequest{Key: key, Value: key}); err == nil {
					a.add()
				}
			})
			<-tick.C
		}
	})
	return sync.OnceFunc(func() {
		all.Wait()
		for _, conn := range conns {
			conn.Close()
		}
	}), nil
}
