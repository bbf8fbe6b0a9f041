package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/test/process"
)

// measureMany measures what a server holds many of, or large. Each part has servers of
// its own, so that none finds what another one left.
func measureMany(p *plan) (s section, err error) {
	s.rows = [][]string{{"work", "etcd", "stoa", "stoa : etcd"}}
	for _, part := range []struct {
		nodes int
		do    func(*scaler) error
	}{{1, (*scaler).leases}, {1, (*scaler).watchersOfOne}, {1, (*scaler).watchersOfMany}, {1, (*scaler).connections}, {3, (*scaler).values}} {
		rows, err := p.manyPart(part.nodes, part.do)
		if err != nil {
			return s, err
		}
		for _, r := range rows {
			row, _ := r.cells()
			s.rows = append(s.rows, row)
		}
	}
	s.text = fmt.Sprintf("One server of each kind, three for the large values, new for each part. %d leases, granted by 100 clients; %d watchers over etcd's API, %d streams on each of %d connections, "+
		"first all on one directory (one put: every watcher has an event), then spread over %d keys (each put once); %d connections with a client each, of which each puts every other second; values of 1 MiB. "+
		"Memory is the growth of the server's resident memory, the least of some seconds.",
		p.leases, p.watchers, watchStreams, maxConns, p.keys, p.conns)
	return s, nil
}

func (p *plan) manyPart(nodes int, do func(*scaler) error) (_ []*scaleRow, err error) {
	both, done, err := p.pair(nodes, subject{}, subject{})
	if err != nil {
		return nil, err
	}
	defer func() { done(&err) }()
	sc := &scaler{p: p, both: both}
	err = do(sc)
	return sc.rows, err
}

// grown measures what a server's memory grows by, for each of so many.
func (sc *scaler) grown(i int, what string, n int, do func(*process.Server) error) error {
	server := sc.both[i].cluster.Servers[0]
	before, err := sc.leastMemory(server)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := do(server); err != nil {
		return fmt.Errorf("%d %s, %s: %w", n, what, sc.both[i].subject.name, err)
	}
	sc.add(i, sc.row(fmt.Sprintf("%d %s, time", n, what), asDurations), float64(time.Since(began)))
	after, err := sc.leastMemory(server)
	if err != nil {
		return err
	}
	sc.add(i, sc.row(fmt.Sprintf("%d %s, memory each", n, what), asKiB), float64(after.all()-before.all())/float64(n))
	return nil
}

func asKiB(v []float64) string { return kib(v[len(v)-1]) }

func (sc *scaler) leastMemory(s *process.Server) (least memoryOf, err error) {
	for range 4 {
		time.Sleep(time.Second)
		m, err := residentOf(s)
		if err != nil {
			return m, err
		}
		if least.all() == 0 || m.all() < least.all() {
			least = m
		}
	}
	return least, nil
}

func (sc *scaler) leases() error {
	for i, b := range sc.both {
		err := sc.grown(i, "leases", sc.p.leases, func(*process.Server) error {
			var next atomic.Int64
			grant := func(int) []byte {
				// Marshalling so simple a message doesn't fail.
				m, _ := proto.Marshal(&pb.LeaseGrantRequest{TTL: 3600, ID: 1_000_000 + next.Add(1)})
				return m
			}
			return b.load.run("lease", 100, grant, func() bool { return int(next.Load()) >= sc.p.leases }).wait()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// watchersOfOne all watch one directory.
func (sc *scaler) watchersOfOne() error {
	return sc.watchers("watchers of one prefix", func(int) (string, string) { return "/bench/00/", "/bench/000" }, func(b *bench) error {
		return once(b.cluster.Servers[0], func(ctx context.Context, a *admin) error {
			_, err := a.kv.Put(ctx, &pb.PutRequest{Key: []byte(keyName(0)), Value: bytes.Repeat([]byte{'x'}, sc.p.value)})
			return err
		})
	})
}

// watchersOfMany watch a key each, or rather some of them the same.
func (sc *scaler) watchersOfMany() error {
	return sc.watchers(fmt.Sprintf("watchers of %d keys", sc.p.keys), func(i int) (string, string) { return keyName(i % sc.p.keys), "" },
		func(b *bench) error { return b.load.fill() })
}

func (sc *scaler) watchers(what string, span func(int) (string, string), put func(*bench) error) error {
	n := sc.p.watchers / sc.p.keys * sc.p.keys // as many of each key
	if n == 0 {
		return fmt.Errorf("%d watchers are fewer than %d keys", sc.p.watchers, sc.p.keys)
	}
	all := make([][]*watchLink, len(sc.both))
	defer func() {
		for _, links := range all {
			closeWatches(links)
		}
	}()
	for i := range sc.both {
		err := sc.grown(i, what, n, func(s *process.Server) (err error) {
			all[i], err = openWatches(address(s), maxConns, n, span)
			return err
		})
		if err != nil {
			return err
		}
	}
	for range sc.p.rounds {
		for i, b := range sc.both {
			took, err := deliver(all[i], n, func() error { return put(b) })
			if err != nil {
				return fmt.Errorf("events for %s, %s: %w", what, b.subject.name, err)
			}
			sc.add(i, sc.row(fmt.Sprintf("%d %s, an event for each", n, what), asDurations), float64(took))
		}
	}
	return nil
}

// connections open many, and then put from all of them.
func (sc *scaler) connections() error {
	for i, b := range sc.both {
		l := *b.load
		l.conns, l.buffer, l.hold = sc.p.conns, 4<<10, make(chan struct{})
		// Not one put of each at a time: etcd refuses more than 5,000.
		l.pace = float64(sc.p.conns) / 2
		var r *running
		err := sc.grown(i, "connections", sc.p.conns, func(*process.Server) error {
			r = l.start("put", sc.p.conns)
			for deadline := time.Now().Add(time.Minute); int(r.opened.Load()) < sc.p.conns; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					return fmt.Errorf("%d connections are open after a minute", r.opened.Load())
				}
			}
			return nil
		})
		close(l.hold)
		if err != nil {
			return errors.Join(err, r.stop())
		}
		time.Sleep(2 * time.Second) // by then each has put once
		got, err := sc.p.window(b.cluster, r)
		if err := errors.Join(err, r.stop()); err != nil {
			return fmt.Errorf("puts over %d connections, %s: %w", sc.p.conns, b.subject.name, err)
		}
		what := fmt.Sprintf("puts over %d connections, %.0f a second", sc.p.conns, l.pace)
		sc.add(i, sc.row(what+", p50", asDurations), float64(got.p50))
		sc.add(i, sc.row(what+", p99", asDurations), float64(got.p99))
		sc.add(i, sc.row(what+", CPU each", asDurations), float64(got.cpu))
	}
	return nil
}

const mebibyte = 1 << 20

// values are large ones, and one that is too large.
func (sc *scaler) values() error {
	value := bytes.Repeat([]byte{'x'}, mebibyte)
	puts := 20
	if sc.p.quick {
		puts = 5
	}
	err := sc.timed(sc.p.rounds, fmt.Sprintf("%d puts of 1 MiB, one by one", puts), nil, func(s *process.Server) error {
		return once(s, func(ctx context.Context, a *admin) error {
			for i := range puts {
				if _, err := a.kv.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "/large/%d", i%5), Value: value}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	err = sc.timed(sc.p.rounds, fmt.Sprintf("%d strict gets of 1 MiB, one by one", puts), nil, func(s *process.Server) error {
		return once(s, func(ctx context.Context, a *admin) error {
			for i := range puts {
				key := fmt.Sprintf("/large/%d", i%5)
				if n, err := rangeAll(ctx, a, key, ""); err != nil || n < mebibyte {
					return fmt.Errorf("an answer of %d bytes: %w", n, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, b := range sc.both {
		err := once(b.cluster.Servers[0], func(ctx context.Context, a *admin) error {
			if _, err := a.kv.Put(ctx, &pb.PutRequest{Key: []byte("/large/x"), Value: make([]byte, mebibyte*3/2)}); err == nil {
				return fmt.Errorf("%s takes a request of more than 1.5 MiB", b.subject.name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
