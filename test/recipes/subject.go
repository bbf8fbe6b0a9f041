package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/recipes/byextension"
	"github.com/stoa-kv/stoa/test/recipes/overetcd"
	"github.com/stoa-kv/stoa/test/recipes/overzookeeper"
	"github.com/stoa-kv/stoa/test/recipes/recipe"
	"github.com/stoa-kv/stoa/test/recipes/socket"
)

// What can be compared.
const (
	etcd      = "etcd"
	zookeeper = "zookeeper"
	stoa      = "stoa"
	extension = "extension"
	session   = "session"
)

var allSubjects = []string{etcd, zookeeper, stoa, extension, session}

// titles name the subjects in the report.
var titles = map[string]string{
	etcd:      "etcd",
	zookeeper: "ZooKeeper",
	stoa:      "stoa, etcd's recipe",
	extension: "stoa, extension",
	session:   "stoa, extension, session",
}

// subject is one way to do the recipes, on a cluster that stands.
type subject struct {
	name    string
	cluster *process.Cluster
	kits    []recipe.Kit // one for each client
	taps    []*socket.Tap
	referee recipe.Kit       // resets and checks; is not measured
	without map[string]error // recipes that can't be done here, and why
}

// clusters are the clusters of one size, by the server that process.Choose was asked for.
type clusters map[string]*process.Cluster

// of starts the cluster of a server, or returns the one that runs.
func (cs clusters) of(ctx context.Context, server string, nodes int) (*process.Cluster, error) {
	if c := cs[server]; c != nil {
		return c, nil
	}
	bin, err := process.Choose(server)
	if err != nil {
		return nil, err
	}
	dir, err := process.TempDir("recipes")
	if err != nil {
		return nil, err
	}
	c, err := process.Start(ctx, process.Spec{Binary: bin, Nodes: nodes, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", server, err)
	}
	cs[server] = c
	return c, nil
}

func (cs clusters) close(keep bool) {
	for _, c := range cs {
		c.Close()
		if !keep {
			os.RemoveAll(c.Spec.Dir)
		}
	}
}

// open makes a subject with its participants. An error that is a process.ErrNoJava
// means that there can't be one on this machine.
func open(ctx context.Context, p *plan, name string, cs clusters, nodes int) (*subject, error) {
	server := name
	if name == stoa || name == extension || name == session {
		server = p.stoa
	}
	c, err := cs.of(ctx, server, nodes)
	if err != nil {
		return nil, err
	}
	s := &subject{name: name, cluster: c, without: map[string]error{}}
	urls := c.Endpoints()
	for i := range slices.Max(p.clients) + 1 {
		tap := &socket.Tap{}
		k, err := dial(ctx, name, urls, i, tap)
		if err != nil {
			s.close()
			return nil, err
		}
		s.kits, s.taps = append(s.kits, k), append(s.taps, tap)
	}
	last := len(s.kits) - 1
	s.referee, s.kits, s.taps = s.kits[last], s.kits[:last], s.taps[:last]
	if name == extension || name == session {
		s.register(ctx, p)
	}
	return s, nil
}

// dial connects a client to the server whose turn it is, but for those that choose
// theirs themselves.
func dial(ctx context.Context, name string, urls []string, i int, tap *socket.Tap) (recipe.Kit, error) {
	url := urls[i%len(urls)]
	switch name {
	case session:
		return byextension.DialSession(ctx, urls, tap)
	case zookeeper:
		return overzookeeper.Dial(ctx, url, tap)
	case extension:
		return byextension.Dial(url, tap)
	case stoa:
		// On the extensions' cluster, away from their keys.
		return overetcd.Dial(url, "/t", tap)
	}
	return overetcd.Dial(url, "", tap)
}

// register puts the extensions in place, and notes which of them can't be used.
func (s *subject) register(ctx context.Context, p *plan) {
	for _, name := range p.recipes {
		err := byextension.Register(ctx, s.cluster.Endpoints()[0], p.extensions, name)
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("there is no %s.lua in %s", name, p.extensions)
		}
		s.without[name] = err
		fmt.Fprintf(os.Stderr, "%s of the %s skipped: %v\n", titles[s.name], name, err)
	}
}

func (s *subject) close() {
	if s.referee != nil {
		s.referee.Close()
	}
	for _, k := range s.kits {
		k.Close()
	}
}
