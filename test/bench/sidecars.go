package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// Suffixes that have clients connect to so many processes in front of the servers; CPU time is the servers'
// alone.
const (
	sidecarsSuffix = "+sidecars"
	cachesSuffix   = "+caches"  // sidecars that keep the keys
	proxiesSuffix  = "+proxies" // etcd's own grpc-proxy
	sidecarCount   = 10
)

// fronts are what may be between clients and servers.
var fronts = map[string]func(c *process.Cluster, name string) (*process.Server, error){
	sidecarsSuffix: func(c *process.Cluster, name string) (*process.Server, error) { return c.Sidecar(name) },
	cachesSuffix: func(c *process.Cluster, name string) (*process.Server, error) {
		return c.Sidecar(name, "--cache="+benchPrefix)
	},
	proxiesSuffix: func(c *process.Cluster, name string) (*process.Server, error) { return c.Proxy(name) },
}

// cutFront takes such a suffix off a subject's name.
func cutFront(name string) (rest, front string) {
	for suffix := range fronts {
		if rest, ok := strings.CutSuffix(name, suffix); ok {
			return rest, suffix
		}
	}
	return name, ""
}

// startFronts starts them and returns their addresses.
func startFronts(c *process.Cluster, front string) (all []*process.Server, urls []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range sidecarCount {
		s, err := fronts[front](c, fmt.Sprintf("front%d", i+1))
		if err != nil {
			return all, nil, err
		}
		if err := errors.Join(s.Start(), s.WaitReady(ctx)); err != nil {
			return all, nil, err
		}
		all, urls = append(all, s), append(urls, s.ClientURL)
	}
	return all, urls, nil
}

// measureSidecars measures etcd's API through sidecars, beside both servers without anything between, and
// etcd's own proxy.
func measureSidecars(p *plan) (section, error) {
	own := *p
	own.subjects = nil
	for _, name := range []string{"etcd", "stoa" + sidecarsSuffix, "stoa", "stoa" + cachesSuffix, "etcd" + proxiesSuffix} {
		s, err := p.parseSubject(name)
		if err != nil {
			return section{}, err
		}
		own.subjects = append(own.subjects, s)
	}
	own.clients = []int{1, unaryClients}
	own.ops = []string{"put", "get"}
	rep := &report{plan: &own, goals: sidecarGoals}
	if err := runNodes(&own, slices.Max(p.nodes), rep); err != nil {
		return section{}, err
	}
	s := rep.section()
	s.notes = append(s.notes, fmt.Sprintf("%q: %d sidecars; %q: these keep the keys in memory (--cache); %q: %d of etcd's grpc-proxy. CPU/op is that of the three servers alone; "+
		"sidecars and proxies share the machine with them.", sidecarsSuffix, sidecarCount, cachesSuffix, proxiesSuffix, sidecarCount))
	return s, nil
}

// sidecarGoals are what clients of sidecars must get: beside etcd the servers' CPU time, and for one client the
// latency beside stoa without sidecars.
func sidecarGoals(c cell, own, base []sample) []verdict {
	const direct = 2
	name := "sidecars, " + c.name()
	if c.clients == 1 {
		return []verdict{atMost(name+": p50 beside direct", compare(own, c.samples[direct], byP50), 1.3)}
	}
	return []verdict{atMost(name+": CPU per operation", compare(own, base, byCPU), 0.2)}
}
