package main

import "slices"

// tracingArgs have requests traced whose clients ask for it: none of the load.
var tracingArgs = []string{"--enable-distributed-tracing", "--distributed-tracing-sampling-rate=0"}

// measureTracing measures etcd's API with tracing, of which no request is sampled, beside stoa without.
func measureTracing(p *plan) (section, error) {
	own := *p
	own.subjects = []subject{{name: "stoa", bin: p.stoa}, {name: "stoa, tracing", bin: p.stoa, args: tracingArgs}}
	own.ops, own.clients = []string{"put", "get"}, []int{unaryClients}
	rep := &report{plan: &own, goals: func(c cell, own, base []sample) []verdict {
		return []verdict{atMost("tracing of no request, "+c.name()+": CPU per operation", compare(own, base, byCPU), 1.03)}
	}}
	if err := runNodes(&own, slices.Max(p.nodes), rep); err != nil {
		return section{}, err
	}
	return rep.section(), nil
}
