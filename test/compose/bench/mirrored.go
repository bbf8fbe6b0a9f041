package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/region"
)

// The ways in which clients of both regions use keys of both, beside those of their own region. All but
// the first have an order for each cluster, not one over all.
const (
	mirrored    = "mirrored"           // at home in the east, with a mirror in the west
	unordered   = "mirrored, unsynced" // the same, with a client for the own keys and one for the shared ones
	partitioned = "by hand"            // in the eastern cluster, which has a member in the west; the same two clients
	oneCluster  = "one cluster"        // all keys, also the west's, are in that cluster
)

var mirrorWays = []string{mirrored, unordered, partitioned, oneCluster}

// sharing makes clients that are beside one voter at home.
func sharing(way string, r, v int, at *region.Region, clusters [2]*cluster) (make func(context.Context) (requester, error), done func(), err error) {
	all, err := compose.New(sharingConfig(way, r, v, at, clusters))
	if err != nil {
		return nil, nil, err
	}
	fork := func(context.Context) (requester, error) {
		if way == mirrored || way == oneCluster {
			return overCompose{all.Fork()}, nil
		}
		return apart{own: overCompose{all.Fork()}, shared: overCompose{all.Fork()}}, nil
	}
	return fork, func() { all.Close() }, nil
}

func sharingConfig(way string, r, v int, at *region.Region, clusters [2]*cluster) compose.Config {
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}}
	for i, c := range clusters {
		one := compose.Cluster{Endpoints: urls(c.voters()), DialOptions: dialing(at)}
		switch {
		case i == r:
			one.Near = []string{c.voters()[v].ClientURL}
		case way == partitioned || way == oneCluster:
			one.Near = []string{c.away().ClientURL}
		}
		cfg.Clusters[names[i]] = one
	}
	const east, west = 0, 1
	cfg.Routes = []compose.Route{{Prefix: "/east/", Cluster: names[east]}, {Prefix: "/west/", Cluster: names[west]}}
	if way == oneCluster {
		cfg.Routes[west].Cluster = names[east]
	}
	if way == mirrored || way == unordered {
		cfg.Local = names[r]
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: sharedPrefix, Cluster: names[east], Mirrors: []string{names[west]}})
	} else { // by other names there, which no mirror has
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: sharedPrefix, Cluster: names[east], Strip: true})
	}
	return cfg
}

// apart is a client for the own region's keys and one for the shared ones, with nothing between them.
type apart struct{ own, shared requester }

func (a apart) of(key string) requester {
	if strings.HasPrefix(key, sharedPrefix) {
		return a.shared
	}
	return a.own
}

func (a apart) put(key string) func(context.Context) error { return a.of(key).put(key) }
func (a apart) get(key string) func(context.Context) error { return a.of(key).get(key) }

func (a apart) stats() compose.Stats {
	s, o := a.own.stats(), a.shared.stats()
	s.Reads, s.Updates, s.Mirrored, s.Syncs = s.Reads+o.Reads, s.Updates+o.Updates, s.Mirrored+o.Mirrored, s.Syncs+o.Syncs
	return s
}

func (a apart) close() {
	a.own.close()
	a.shared.close()
}

// mirror puts the shared keys, under both names, and runs a worker in the west.
func (b *bench) mirror(ctx context.Context, world *region.World) (end func(), err error) {
	keys := keysOf(b.p, shared)
	for _, k := range slices.Clone(keys) {
		keys = append(keys, strings.TrimPrefix(k, sharedPrefix))
	}
	if err := b.clusters[0].fill(ctx, keys); err != nil {
		return nil, err
	}
	c, err := compose.New(sharingConfig(mirrored, 1, 0, world.Regions[1], b.clusters))
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Mirror(working, compose.MirrorOptions{}) }()
	end = func() {
		stop()
		<-ended
		c.Close()
	}
	for ctx.Err() == nil {
		if st, err := c.MirrorStatus(ctx); err == nil && st[0].Usable {
			return end, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	end()
	return nil, fmt.Errorf("waiting for the mirror: %w", ctx.Err())
}
