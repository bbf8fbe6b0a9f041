package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
)

// kubeGoals are what is asked beside etcd.
const (
	kubeCPU, kubeP99, kubeLag, kubeMemory, kubeMost = 0.35, 0.7, 0.7, 1, 3
)

func kubeSection(p *plan, all []*kubeBench) section {
	s := section{text: kubeText(p), charts: map[string]plot.Chart{"bench-kube.svg": kubeChart(all)}}
	s.rows = [][]string{{"work", "server", "per second", "p50", "p99", "p50 ratio", "p99 ratio"}}
	for k := range kubeKinds {
		s.rows = append(s.rows, kubeRows(k.String(), all, func(b *kubeBench) []kubeSample { return b.base }, func(t *kubeTimes) *histogram { return &t[k] })...)
	}
	s.rows = append(s.rows, kubeRows("all writes", all, func(b *kubeBench) []kubeSample { return b.base }, (*kubeTimes).writes)...)
	s.rows = append(s.rows, kubeRows("as fast as answers come: update of a lease", all, func(b *kubeBench) []kubeSample { return b.renewals }, (*kubeTimes).writes)...)
	s.rows = append(s.rows, kubeRows("as fast as answers come: event", all, func(b *kubeBench) []kubeSample { return b.renewals }, func(t *kubeTimes) *histogram { return &t[eventLags] })...)
	for _, b := range all {
		s.notes = append(s.notes, b.note())
	}
	for _, b := range all[1:] {
		s.verdicts = append(s.verdicts, kubeVerdicts(p, b, all[0])...)
	}
	return s
}

func kubeText(p *plan) string {
	return fmt.Sprintf("%d servers of each kind, and %d API servers, each with a connection for each resource to one server: what the storage layer of kube-apiserver 1.36 sends. Writes are transactions: "+
		"put or delete, if the object's revision is the one known, otherwise get it. A node updates its lease (%d B) every %v and its own object (%d B) every %v. It has %d pods (%d to %d B): "+
		"at %.4f a second for each node there is a new one, with %d updates and %d gets in its life, its deletion, and %d events (%d B) under leases that %d events share. "+
		"Of the pods' updates %.0f %% are tried with an older revision first. Pods are listed in pages of %d at one revision, all of them by each API server every %v. "+
		"Each API server watches all four resources, with previous values and progress notifications, and asks for progress every %v. It asks for no fragments: kube-apiserver doesn't.\n\n"+
		"Stored are the leases of all nodes, but at most %d nodes' objects and %d pods; writes are as many as for all. "+
		"The churn of pods is a tenth of what Google published of 130,000 nodes; where each number is from is said in `test/bench/kubeload.go`.\n\n"+
		"A request's time counts from when it is due, whether or not earlier ones are answered; an event's from when its write was due, until an API server has it: each of them counts. "+
		"A call that a server refuses (\"too many requests\") is sent again after %v, and its time goes on. "+
		"%d interleaved rounds of %v at %d nodes. As fast as answers come: each API server updates %d leases at once. The most nodes: those with a p99 of all writes up to %v, by doubling and bisection, %d times; a number holds if one of %d rounds keeps that, with as many writes answered as it asks for, and the load generator sending in time. ",
		kubeServers, apiServers, leaseSize, leasePeriod, nodeSize, statusPeriod, podsPerNode, podLeast, podMost, podChurn, podUpdates, podGets, podEvents, eventSize, perLease,
		staleUpdates*100, pageLimit, listPeriod, progressPeriod, mostNodeObjects, mostPods, refusedFor, p.rounds, p.length, p.kubeNodes, renewalsAtOnce, limitNodes, p.searches, triesOfLevel)
}

// kubeRows are one kind of work, for each server.
func kubeRows(work string, all []*kubeBench, of func(*kubeBench) []kubeSample, pick func(*kubeTimes) *histogram) (rows [][]string) {
	quantiles := func(b *kubeBench, q float64) (v []float64) {
		for _, s := range of(b) {
			v = append(v, float64(pick(s.times).quantile(q)))
		}
		return v
	}
	for i, b := range all {
		var rates []float64
		for _, s := range of(b) {
			rates = append(rates, float64(pick(s.times).count)/s.took.Seconds())
		}
		row := []string{work, b.name, fmt.Sprintf("%.0f", middle(rates)), "", "", "", ""}
		for j, q := range []float64{0.5, 0.99} {
			row[3+j] = round(time.Duration(middle(quantiles(b, q)))).String()
			if i > 0 {
				row[5+j] = ratioOf(quantiles(b, q), quantiles(all[0], q)).String()
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func kubeFigures(rounds []kubeSample, of func(kubeSample) float64) (v []float64) {
	for _, s := range rounds {
		v = append(v, of(s))
	}
	return v
}

// What rounds are compared by.
func kubeCores(s kubeSample) float64    { return s.cpu }
func kubeResident(s kubeSample) float64 { return s.resident }
func kubeLagP99(s kubeSample) float64   { return float64(s.times[eventLags].quantile(0.99)) }
func kubePerWrite(s kubeSample) float64 { return s.cpu / s.writeRate() }

func (b *kubeBench) note() string {
	figure := func(rounds []kubeSample, of func(kubeSample) float64) float64 { return middle(kubeFigures(rounds, of)) }
	return fmt.Sprintf("%s: %.2f cores for all servers (the load generator %.2f), %.0f MiB of resident memory for all; as fast as answers come %.0f updates/s at %v of CPU each; most nodes: %.0f (of %d rounds that failed, %d by the load generator).",
		b.name, figure(b.base, kubeCores), figure(b.base, func(s kubeSample) float64 { return s.load }), figure(b.base, kubeResident)/(1<<20),
		figure(b.renewals, kubeSample.writeRate), round(time.Duration(figure(b.renewals, kubePerWrite)*float64(time.Second))), middle(b.most), len(b.failed), b.bounded)
}

func kubeVerdicts(p *plan, own, base *kubeBench) []verdict {
	beside := func(of func(kubeSample) float64) ratio {
		return ratioOf(kubeFigures(own.base, of), kubeFigures(base.base, of))
	}
	fast := func(of func(kubeSample) float64) ratio {
		return ratioOf(kubeFigures(own.renewals, of), kubeFigures(base.renewals, of))
	}
	name := fmt.Sprintf("Kubernetes' load, %d servers, %d nodes: ", kubeServers, p.kubeNodes)
	all := []verdict{
		atMost(name+"CPU", beside(kubeCores), kubeCPU),
		atMost(name+"p99 of writes", beside(kubeSample.writesP99), kubeP99),
		atMost(name+"p99 of the watches' lag", beside(kubeLagP99), kubeLag),
		atMost(name+"memory", beside(kubeResident), kubeMemory),
		atMost("Kubernetes' load, leases as fast as answers come: CPU per update", fast(kubePerWrite), kubeCPU),
	}
	if len(own.most) > 0 {
		all = append(all, atLeast("Kubernetes' load: most nodes", ratioOf(own.most, base.most), kubeMost))
	}
	return all
}

// kubeChart draws what the search for the most nodes passed through.
func kubeChart(all []*kubeBench) plot.Chart {
	panels := []plot.Panel{
		{Title: "writes", X: "nodes", Y: "p99, ms"},
		{Title: "watches", X: "nodes", Y: "p99 of an event's lag, ms"},
		{Title: "CPU time of all servers", X: "nodes", Y: "cores"},
	}
	for _, b := range all {
		levels := slices.SortedStableFunc(slices.Values(b.levels), func(x, y kubeSample) int { return cmp.Compare(x.nodes, y.nodes) })
		for _, s := range levels {
			x := float64(s.nodes)
			addPoint(&panels[0], b.name, plot.Point{X: x, Y: s.writesP99() / float64(time.Millisecond)})
			addPoint(&panels[1], b.name, plot.Point{X: x, Y: kubeLagP99(s) / float64(time.Millisecond)})
			addPoint(&panels[2], b.name, plot.Point{X: x, Y: s.cpu})
		}
	}
	return plot.Chart{Title: "Kubernetes' load", Panels: panels}
}
