package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// What a Kubernetes cluster asks of its storage, for each of its nodes.
const (
	// A kubelet renews its lease at a quarter of nodeLeaseDurationSeconds, 40.
	leasePeriod = 10 * time.Second
	// It reports its node's status at nodeStatusReportFrequency if nothing has changed.
	statusPeriod = 5 * time.Minute

	podsPerNode = 30
	// podChurn is how many pods a second there are new for each node, and as many end: a tenth of
	// what Google published of a cluster of 130,000 nodes on which 1,000 pods a second were
	// created ("How Google Does It: Building the largest known Kubernetes cluster, with 130,000
	// nodes", Google Cloud, November 2025).
	podChurn = 1000.0 / 130_000 / 10

	// Of a pod's life: bound by the scheduler, its status reported by the kubelet as it starts, is
	// ready, and ends, and marked for its deletion; each report of the kubelet reads the pod
	// before. Scheduled, Pulled, Created, Started, Killing are its events.
	podUpdates = 5
	podGets    = 3
	podEvents  = 5

	// Controllers that start anew list all pods, in pages of client-go's size.
	listPeriod = 15 * time.Minute
	pageLimit  = 500

	// The API server asks at this interval how far a watch is while consistent reads wait for its
	// cache (progressRequestPeriod).
	progressPeriod = 100 * time.Millisecond

	// Events expire after --event-ttl, an hour, and share leases (lease_manager.go of
	// k8s.io/apiserver): each serves at most 1,000 events within a minute.
	eventTTL   = time.Hour + time.Minute
	perLease   = 1000
	leaseReuse = time.Minute

	// staleUpdates is the part of the pods' updates whose writer knows an older revision first.
	// It has no source.
	staleUpdates = 0.02
)

// Objects as they are stored: bytes of a value, and how many there are at most, because a machine
// with a load generator and six servers doesn't hold more. Beyond these numbers there are as many
// writes as for more, but to the same objects.
const (
	leaseSize         = 512
	nodeSize          = 5000
	podLeast, podMost = 1000, 5000
	eventSize         = 700
	mostNodeObjects   = 10_000
	mostPods          = 30_000
	newestPods        = 300 // which are updated and read, of each API server
	apiServers        = 3
)

// kubeAPI is one API server: a connection to one server of the cluster for each resource.
type kubeAPI struct {
	leases, nodes, pods, events *kubeSet
}

func (a *kubeAPI) sets() []*kubeSet { return []*kubeSet{a.leases, a.nodes, a.pods, a.events} }

func openAPI(address string, number int) (*kubeAPI, error) {
	rnd := rand.New(rand.NewPCG(uint64(number), 7))
	fixed := func(n int) func() int { return func() int { return n } }
	named := func(format string) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, i*apiServers+number) }
	}
	a := &kubeAPI{
		leases: &kubeSet{kind: leaseUpdates, prefix: "/registry/leases/", name: named("kube-node-lease/pool-1-%08d"), size: fixed(leaseSize)},
		nodes:  &kubeSet{kind: nodeUpdates, prefix: "/registry/minions/", name: named("pool-1-%08d"), size: fixed(nodeSize)},
		pods: &kubeSet{kind: podWrites, prefix: "/registry/pods/", size: func() int { return podLeast + rnd.IntN(podMost-podLeast) },
			name: func(i int) string { return fmt.Sprintf("namespace-%d/web-6d4cf56db6-%08d", i%100, i*apiServers+number) }},
		events: &kubeSet{kind: eventCreations, prefix: "/registry/events/", size: fixed(eventSize),
			name: func(i int) string {
				return fmt.Sprintf("namespace-%d/web-6d4cf56db6.%016x", i%100, i*apiServers+number)
			}},
	}
	var failed error
	for _, s := range a.sets() {
		s.rnd = rand.New(rand.NewPCG(uint64(number), 11))
		c, err := openKube(address)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		s.kubeConn = c
		failed = errors.Join(failed, c.follow(s.prefix))
	}
	if failed != nil {
		a.close()
	}
	return a, failed
}

func (a *kubeAPI) close() {
	for _, s := range a.sets() {
		if s.kubeConn != nil {
			s.link.close()
		}
	}
}

// paced is what is sent at a pace, whether or not what was sent before is answered.
type paced struct {
	gap  time.Duration
	next time.Time
	send func(due time.Time) error
}

// perSecond paces something, so many times a second.
func perSecond(rate float64, rnd *rand.Rand, send func(due time.Time) error) *paced {
	gap := time.Duration(float64(time.Second) / rate)
	return &paced{gap: gap, next: time.Now().Add(time.Duration(rnd.Int64N(int64(gap)))), send: send}
}

// allOf sends what is due of several.
func allOf(all ...*paced) sending {
	return func(now time.Time) (time.Time, error) {
		next := now.Add(time.Second)
		for _, p := range all {
			for !now.Before(p.next) {
				if err := p.send(p.next); err != nil {
					return next, err
				}
				p.next = p.next.Add(p.gap)
			}
			if p.next.Before(next) {
				next = p.next
			}
		}
		return next, nil
	}
}

// paces are what each connection of an API server sends for its part of a cluster of so many nodes.
func (a *kubeAPI) paces(nodes int) []sending {
	own := float64(nodes) / apiServers
	churn := own * podChurn
	l, n, p, e := a.leases, a.nodes, a.pods, a.events
	return []sending{
		allOf(perSecond(own/leasePeriod.Seconds(), l.rnd, func(due time.Time) error { return l.update(l.next(int(own)), due, false) })),
		allOf(perSecond(own/statusPeriod.Seconds(), n.rnd, func(due time.Time) error { return n.update(n.next(int(own)), due, false) })),
		allOf(
			perSecond(churn, p.rnd, func(due time.Time) error { return p.create(due, 0) }),
			perSecond(churn, p.rnd, p.removeOldest),
			perSecond(churn*podUpdates, p.rnd, func(due time.Time) error {
				return p.update(p.newest(newestPods), due, p.rnd.Float64() < staleUpdates)
			}),
			perSecond(churn*podGets, p.rnd, func(due time.Time) error { return p.get(p.newest(newestPods), due) }),
			perSecond(own*podsPerNode/pageLimit/listPeriod.Seconds(), p.rnd, p.page),
			perSecond(1/progressPeriod.Seconds(), p.rnd, p.progress),
		),
		allOf(perSecond(churn*podEvents, e.rnd, e.createLeased)),
	}
}

// writesPerSecond is how many writes clusters of so many nodes ask for, all API servers together.
// Those that a stale writer repeats count once.
func writesPerSecond(nodes int) float64 {
	each := 1/leasePeriod.Seconds() + 1/statusPeriod.Seconds() + podChurn*(2+podUpdates+podEvents)
	return float64(nodes) * each
}

// kubeLoad are the API servers of one cluster.
type kubeLoad struct {
	apis []*kubeAPI
}

func openKubeLoad(addresses []string) (*kubeLoad, error) {
	l := &kubeLoad{}
	for i := range apiServers {
		a, err := openAPI(addresses[i%len(addresses)], i)
		if err != nil {
			l.close()
			return nil, err
		}
		l.apis = append(l.apis, a)
	}
	return l, nil
}

func (l *kubeLoad) close() {
	for _, a := range l.apis {
		a.close()
	}
}

// kubeRun is a load that is on.
type kubeRun struct {
	load    *kubeLoad
	stopped atomic.Bool
	done    sync.WaitGroup
	mu      sync.Mutex
	failed  error
}

// start has all connections send. sends are an API server's, in the order of its sets.
func (l *kubeLoad) start(sends func(*kubeAPI) []sending) *kubeRun {
	r := &kubeRun{load: l}
	for _, a := range l.apis {
		of := sends(a)
		for i, s := range a.sets() {
			r.done.Add(1)
			go func() {
				defer r.done.Done()
				if err := s.run(of[i], r.stopped.Load); err != nil {
					r.mu.Lock()
					r.failed = errors.Join(r.failed, fmt.Errorf("%s: %w", s.prefix, err))
					r.mu.Unlock()
					r.stopped.Store(true)
				}
			}()
		}
	}
	return r
}

func (r *kubeRun) wait() error {
	r.done.Wait()
	return r.failed
}

func (r *kubeRun) stop() error {
	r.stopped.Store(true)
	return r.wait()
}

// record begins to record.
func (r *kubeRun) record() { r.recorded() }

// recorded is what was recorded since it was last asked for, and begins anew.
func (r *kubeRun) recorded() *kubeTimes {
	var all kubeTimes
	for _, a := range r.load.apis {
		for _, s := range a.sets() {
			s.mu.Lock()
			for k := range all {
				all[k].merge(&s.hist[k])
			}
			s.hist, s.recording = kubeTimes{}, true
			s.mu.Unlock()
		}
	}
	return &all
}

// kubeTimes are times by kind.
type kubeTimes [kubeKinds]histogram

// writes are all transactions together.
func (t *kubeTimes) writes() *histogram {
	var all histogram
	for _, k := range []kubeKind{leaseUpdates, nodeUpdates, podWrites, eventCreations} {
		all.merge(&t[k])
	}
	return &all
}

// grow creates what a cluster of so many nodes has stored.
func (l *kubeLoad) grow(nodes int) error {
	var left atomic.Int64
	left.Store(int64(4 * len(l.apis)))
	var r *kubeRun
	ready := make(chan struct{})
	done := func() {
		if left.Add(-1) == 0 {
			<-ready
			r.stopped.Store(true)
		}
	}
	r = l.start(func(a *kubeAPI) []sending {
		part := func(n int) int { return (n + apiServers - 1) / apiServers }
		return []sending{
			a.leases.grow(part(nodes), done),
			a.nodes.grow(part(min(nodes, mostNodeObjects)), done),
			a.pods.grow(part(min(nodes*podsPerNode, mostPods)), done),
			a.events.grow(0, done),
		}
	})
	close(ready)
	return r.wait()
}

// renewals has every API server update so many leases at a time, as fast as answers come.
func (l *kubeLoad) renewals(atOnce int) *kubeRun {
	return l.start(func(a *kubeAPI) []sending {
		s, none := a.leases, allOf()
		return []sending{func(now time.Time) (time.Time, error) {
			for len(s.open) < min(atOnce, len(s.objects)) {
				if err := s.update(s.next(len(s.objects)), now, false); err != nil {
					return now, err
				}
			}
			return now.Add(10 * time.Millisecond), nil
		}, none, none, none}
	})
}
