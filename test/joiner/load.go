package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// latencies are those of the puts of a time.
type latencies []time.Duration

// sample is a put that was answered.
type sample struct {
	at   time.Time
	took time.Duration
}

// at is a quantile.
func (l latencies) at(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// load puts at a fixed rate.
type load struct {
	stop context.CancelFunc
	all  sync.WaitGroup
	mu   sync.Mutex
	took []sample
	err  error
}

func connect(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

func (s *settings) begin(c *process.Cluster) (*load, error) {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop}
	due := make(chan time.Time, s.rate*60)
	for i := range s.clients {
		cli, err := connect(c.Servers[i%len(c.Servers)].ClientURL)
		if err != nil {
			stop()
			return nil, err
		}
		l.all.Go(func() {
			defer cli.Close()
			l.put(ctx, cli, due, s.keys)
		})
	}
	l.all.Go(func() {
		defer close(due)
		next := time.Now()
		for ctx.Err() == nil {
			due <- next
			next = next.Add(time.Second / time.Duration(s.rate))
			time.Sleep(time.Until(next))
		}
	})
	return l, nil
}

func (l *load) put(ctx context.Context, cli *clientv3.Client, due <-chan time.Time, keys int) {
	value := string(make([]byte, 256))
	for at := range due {
		_, err := cli.Put(ctx, process.PodKey(int(at.UnixNano()/1000)%keys), value)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		now := time.Now()
		l.took, l.err = append(l.took, sample{now, now.Sub(at)}), errors.Join(l.err, err)
		l.mu.Unlock()
	}
}

// take returns the puts since the last time.
func (l *load) take() []sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := l.took
	l.took = nil
	return took
}

func latenciesOf(all []sample) (l latencies) {
	for _, s := range all {
		l = append(l, s.took)
	}
	return l
}

// course writes the latencies of each step of a time, to find the cause of long ones beside
// the servers' logs.
func course(w io.Writer, all []sample, step time.Duration) {
	slices.SortFunc(all, func(a, b sample) int { return a.at.Compare(b.at) })
	for len(all) > 0 {
		end := all[0].at.Truncate(step).Add(step)
		n, _ := slices.BinarySearchFunc(all, end, func(s sample, t time.Time) int { return s.at.Compare(t) })
		l := latenciesOf(all[:n])
		fmt.Fprintf(w, "%s: %4d puts, p50 %v, p99 %v, longest %v\n", end.Format("15:04:05.000"), n, l.at(0.5), l.at(0.99), l.at(1))
		all = all[n:]
	}
}

func (l *load) end() error {
	l.stop()
	l.all.Wait()
	return l.err
}

// join adds a member and promotes it as soon as that is accepted.
func join(ctx context.Context, c *process.Cluster) (serves, votes time.Duration, err error) {
	cli, err := connect(c.Endpoints()...)
	if err != nil {
		return 0, 0, err
	}
	defer cli.Close()
	s, err := c.Joining("s4", process.Place{Host: "127.0.0.1"})
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	added, err := cli.MemberAddAsLearner(ctx, []string{s.PeerURL})
	if err != nil {
		return 0, 0, fmt.Errorf("member add: %w", err)
	}
	if err := s.Start(); err != nil {
		return 0, 0, err
	}
	if err := s.WaitReady(ctx); err != nil {
		return 0, 0, err
	}
	serves = time.Since(began)
	for {
		if _, err = cli.MemberPromote(ctx, added.Member.ID); err == nil {
			return serves, time.Since(began), nil
		}
		if time.Since(began) > 5*time.Minute {
			return 0, 0, fmt.Errorf("member promote: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
