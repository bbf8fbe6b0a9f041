package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// The ways that are compared.
const (
	composed  = "composed"
	neverSync = "never-sync"
	syncAll   = "sync-all"
	stretched = "stretched"
	plain     = "plain" // a client of the own region's cluster alone
)

// value is what is written.
var value = strings.Repeat("v", valueSize)

// requester is one client. An answer is waited for by calling what a method returns.
type requester interface {
	put(key string) func(context.Context) error
	get(key string) func(context.Context) error
	stats() compose.Stats
	close()
}

// team are the clients of one way, by region.
type team struct {
	way     string
	clients [2][]*member
	close   func()
}

// member is a client of a team, and what switches of cluster it was asked for.
type member struct {
	requester
	last     int // where the latest request went
	began    bool
	switches int64
	toReads  int64 // switches whose first request is a read: those that need a sync
}

// asked notes a request.
func (m *member) asked(cluster int, read bool) {
	if m.began && cluster != m.last {
		m.switches++
		if read {
			m.toReads++
		}
	}
	m.last, m.began = cluster, true
}

// assemble makes a team on the clusters.
func assemble(ctx context.Context, p *plan, way string, stoa bool, world *region.World, clusters [2]*cluster) (*team, error) {
	t := &team{way: way}
	var closers []func()
	t.close = func() {
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
	}
	for r, at := range world.Regions {
		// Clients are spread over the voters at home, as in the paper.
		for v := range voters {
			make, done, err := source(way, stoa, r, v, at, clusters)
			if err != nil {
				t.close()
				return nil, err
			}
			closers = append(closers, done)
			for i := v; i < max(p.clients, slices.Max(p.loads)); i += voters {
				c, err := make(ctx)
				if err != nil {
					t.close()
					return nil, fmt.Errorf("%s, a client in the %s: %w", way, names[r], err)
				}
				closers = append(closers, c.close)
				t.clients[r] = append(t.clients[r], &member{requester: c})
			}
		}
	}
	return t, nil
}

// source makes clients that are beside one voter at home and the member of the other
// cluster that is in their region.
func source(way string, stoa bool, r, v int, at *region.Region, clusters [2]*cluster) (make func(context.Context) (requester, error), done func(), err error) {
	switch {
	case way == plain:
		return single(stoa, clusters[r].voters()[v], at)
	case slices.Contains(mirrorWays, way):
		return sharing(way, r, v, at, clusters)
	}
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}}
	for i, c := range clusters {
		if way == stretched {
			c = clusters[0]
		}
		near := c.away()
		if c == clusters[r] {
			near = c.voters()[v]
		}
		name := names[i]
		if way == stretched {
			name = names[0]
		}
		cfg.Clusters[name] = compose.Cluster{Endpoints: urls(c.voters()), Near: []string{near.ClientURL}, DialOptions: dialing(at)}
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: "/" + names[i] + "/", Cluster: name})
	}
	all, err := compose.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	fork := func(context.Context) (requester, error) {
		switch way {
		case neverSync:
			return &turns{of: [2]requester{overCompose{all.Fork()}, overCompose{all.Fork()}}}, nil
		case syncAll:
			return overCompose{all.Fork().Synced()}, nil
		}
		return overCompose{all.Fork()}, nil
	}
	return fork, func() { all.Close() }, nil
}

// turns is a client for each cluster that never switches, so that no read is synced. It
// asks one cluster at a time, as a composition does.
type turns struct {
	of     [2]requester
	last   int
	latest func(context.Context) error // the latest answer; those before it have come when it has
}

func (t *turns) put(key string) func(context.Context) error {
	return t.ask(key, requester.put)
}

func (t *turns) get(key string) func(context.Context) error {
	return t.ask(key, requester.get)
}

func (t *turns) ask(key string, how func(requester, string) func(context.Context) error) func(context.Context) error {
	at := 0
	if strings.HasPrefix(key, "/"+names[1]+"/") {
		at = 1
	}
	if at != t.last && t.latest != nil {
		_ = t.latest(context.Background()) // its error is reported where it is waited for
	}
	t.last, t.latest = at, how(t.of[at], key)
	return t.latest
}

func (t *turns) stats() compose.Stats { return compose.Stats{} }

func (t *turns) close() {
	t.of[0].close()
	t.of[1].close()
}

// single makes clients of one server.
func single(stoa bool, s *process.Server, at *region.Region) (make func(context.Context) (requester, error), done func(), err error) {
	if !stoa {
		cli, err := dialFrom(at, s.ClientURL)
		if err != nil {
			return nil, nil, err
		}
		return func(context.Context) (requester, error) { return overEtcd{cli}, nil }, func() { cli.Close() }, nil
	}
	cli, err := client.New(client.Config{Endpoints: []string{s.ClientURL}, DialOptions: dialing(at), Level: client.Causal, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	open := func(ctx context.Context) (requester, error) {
		session, err := cli.Session(ctx, client.WithEndpoints(s.ClientURL))
		return overSession{session}, err
	}
	return open, func() { cli.Close() }, nil
}

func waiting[T any](f *client.Future[T]) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := f.Wait(ctx)
		return err
	}
}

type overCompose struct{ c *compose.Client }

func (o overCompose) put(key string) func(context.Context) error {
	return waiting(o.c.PutAsync(key, value))
}
func (o overCompose) get(key string) func(context.Context) error { return waiting(o.c.GetAsync(key)) }
func (o overCompose) stats() compose.Stats                       { return o.c.Stats() }
func (o overCompose) close()                                     { o.c.Close() }

type overSession struct{ s *client.Session }

func (o overSession) put(key string) func(context.Context) error {
	return waiting(o.s.PutAsync(key, value))
}
func (o overSession) get(key string) func(context.Context) error { return waiting(o.s.GetAsync(key)) }
func (o overSession) stats() compose.Stats                       { return compose.Stats{} }
func (o overSession) close()                                     { o.s.Close(context.Background()) }

// overEtcd knows no asynchronous calls: it calls when it is waited for.
type overEtcd struct{ c *clientv3.Client }

func (o overEtcd) put(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := o.c.Put(ctx, key, value)
		return err
	}
}

func (o overEtcd) get(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := o.c.Get(ctx, key, clientv3.WithSerializable())
		return err
	}
}
func (o overEtcd) stats() compose.Stats { return compose.Stats{} }
func (o overEtcd) close()               {}
