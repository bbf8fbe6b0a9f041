package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// coalescedWatchers is how many watches of one prefix there are; coalescedPuts the keys put under it.
const coalescedWatchers, coalescedPuts = 10_000, 200

// measureCoalesced compares what watches of one prefix cost the servers: few of them, and many
// through sidecars.
func measureCoalesced(p *plan) (s section, err error) {
	s.rows = [][]string{{"watches of one prefix", "watchers at the servers", "time of a put and its events", "the servers' CPU, puts without watches", "with them", "of which idle servers use as much", "added by an event of all watches"}}
	for _, sidecars := range []bool{false, true} {
		watchers := []int{sidecarCount}
		if sidecars {
			watchers = []int{sidecarCount, coalescedWatchers}
		}
		for _, n := range watchers {
			row, err := p.coalesced(n, sidecars)
			if err != nil {
				return s, err
			}
			s.rows = append(s.rows, row)
		}
	}
	s.text = fmt.Sprintf("Three servers; %d sidecars, with the watches evenly over them. %d puts, one after the other, each an event of every watch. CPU is that of the three servers for a put. The sidecars and clients share the machine with them, so that a put with its events takes longer, "+
		"and what idle servers use in that time counts more: it is left out of what is added.",
		sidecarCount, coalescedPuts)
	return s, nil
}

func (p *plan) coalesced(watchers int, sidecars bool) (row []string, err error) {
	front := ""
	if sidecars {
		front = sidecarsSuffix
	}
	b, err := newBench(p, subject{name: "stoa", bin: p.stoa, front: front}, 3)
	if err != nil {
		return nil, err
	}
	defer func() { end([]*bench{b}, &err) }()
	idle, err := b.idle()
	if err != nil {
		return nil, err
	}
	without, before, err := b.puts(func(do func() error) error { return do() })
	if err != nil {
		return nil, err
	}
	to, name := b.cluster.Servers, fmt.Sprintf("%d, direct", watchers)
	if sidecars {
		to, name = b.between, fmt.Sprintf("%d, through sidecars", watchers)
	}
	var all []*watchLink
	defer func() { closeWatches(all) }()
	for i, s := range to {
		n := watchers / len(to)
		if i < watchers%len(to) {
			n++
		}
		links, err := openWatches(s.ClientURL[len("http://"):], 1, n, func(int) (string, string) { return "/bench/00/", "/bench/000" })
		if err != nil {
			return nil, err
		}
		all = append(all, links...)
	}
	at := 0.0
	for _, s := range b.cluster.Servers {
		n, err := metricOf(s.ClientURL, "etcd_debugging_mvcc_watcher_total")
		if err != nil {
			return nil, err
		}
		at += n
	}
	with, took, err := b.puts(func(do func() error) error {
		failed := make(chan error, 1)
		go func() { failed <- do() }()
		errs := make([]error, len(all))
		each(len(all), func(i int) {
			want := all[i].created * coalescedPuts
			errs[i] = all[i].until(func() bool { return all[i].events >= want })
		})
		return errors.Join(append(errs, <-failed)...)
	})
	if err != nil {
		return nil, err
	}
	share := func(took time.Duration) time.Duration { return time.Duration(idle * float64(took)) }
	added := with - share(took) - (without - share(before))
	return []string{name, strconv.Itoa(int(at)), round(took).String(), round(without).String(), round(with).String(), round(share(took)).String(), round(added).String()}, nil
}

// idle is the servers' CPU time without load, per time.
func (b *bench) idle() (rate float64, err error) {
	const length = 3 * time.Second
	before, err := b.cluster.CPU()
	if err != nil {
		return 0, err
	}
	time.Sleep(length)
	after, err := b.cluster.CPU()
	return float64(after-before) / float64(length), err
}

// puts puts keys under the prefix, one after the other, and measures the servers' CPU and the time for each.
func (b *bench) puts(during func(do func() error) error) (each, took time.Duration, err error) {
	before, err := b.cluster.CPU()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	err = during(func() error {
		return once(b.cluster.Servers[0], func(ctx context.Context, a *admin) error {
			for range coalescedPuts {
				if _, err := a.kv.Put(ctx, &pb.PutRequest{Key: []byte(keyName(0)), Value: []byte("v")}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(began) / coalescedPuts
	after, err := b.cluster.CPU()
	return (after - before) / coalescedPuts, took, err
}
