package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

const (
	composedRuns    = 12 // unless -rapid.checks says how many
	composedTimeout = 2 * time.Second
	composedHang    = 40 * time.Second // what takes longer hangs
	keptKey         = "/stoa/kept"     // of each cluster: no client's
)

// composedPlan is a drawn history over several clusters.
type composedPlan struct {
	Seed    uint64
	Kinds   []compose.Kind // of the clusters, as the client takes them
	Near    []int          // the member of each that serves the client; 0: any
	Slow    int            // ms, of the networks
	Lives   int            // bytes that connections carry
	Local   int            // bytes that connections to sidecars carry
	Pause   int            // ms, of the hubs
	Mirror  bool           // the mirrored keys are copied, and read at the copy
	Extends string         // what the extension of the first cluster returns; "": there is none
	Users   bool           // permissions are enforced
	Apps    [][]act
	Alone   []bool // the app has connections of its own

	Sidecars int   // that have the clients of the composition; 0: the apps have them
	At       []int // the sidecar of each app
	Trouble  []act
}

func drawComposedPlan(t *rapid.T) *composedPlan {
	p := &composedPlan{
		Seed: rapid.Uint64().Draw(t, "seed"), Slow: rapid.SampledFrom([]int{0, 1, 5, 30}).Draw(t, "slow"),
		Lives: rapid.SampledFrom([]int{0, 10000, 30000, 100000}).Draw(t, "lives"), Pause: rapid.SampledFrom([]int{20, 50, 200}).Draw(t, "pause"),
		Mirror: rapid.Bool().Draw(t, "mirror"), Extends: rapid.SampledFrom([]string{"", "", "nil", "false"}).Draw(t, "extends"),
	}
	p.Users = p.Extends == "" && rapid.Bool().Draw(t, "users")
	for i := range rapid.IntRange(2, 3).Draw(t, "clusters") {
		p.Kinds = append(p.Kinds, rapid.SampledFrom([]compose.Kind{compose.Stoa, compose.Stoa, compose.Etcd}).Draw(t, fmt.Sprint("kind ", i)))
		p.Near = append(p.Near, rapid.IntRange(0, 3).Draw(t, "near"))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "apps") {
		p.Apps = append(p.Apps, rapid.SliceOfN(drawAct(
			"put", "put", "put", "put", "get", "get", "get", "get", "get", "range", "range", "range", "delete", "delete range", "txn", "script", "script", "refused", "refused", "synced", "sync",
			"watch", "watch", "watch", "take", "take", "follow", "follow", "unfollow", "progress", "hold", "hold", "put held", "put held", "stay", "stay", "across", "pair", "put locked", "put extended", "leave", "leave", "cut",
		), 20, 80).Draw(t, fmt.Sprint("app ", i)))
		p.Alone = append(p.Alone, rapid.Bool().Draw(t, "alone"))
	}
	troubles := []string{"cut", "cut", "cut", "cut all", "silence", "refuse", "lead", "replace", "restart", "isolate", "unlink", "full", "none"}
	if rapid.Bool().Draw(t, "revokes") {
		troubles = append(troubles, "revoke", "revoke")
	}
	if rapid.Bool().Draw(t, "resizes") {
		troubles = append(troubles, "resize", "resize", "resize")
	}
	if rapid.Bool().Draw(t, "compacts") {
		troubles = append(troubles, "compact", "compact", "compact")
	}
	if p.Extends != "" {
		troubles = append(troubles, "extend", "extend", "extend")
	}
	if p.Users {
		troubles = append(troubles, "deny", "deny", "deny", "deny")
	}
	if p.Sidecars = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "sidecars"); p.Sidecars > 0 {
		p.Local = rapid.SampledFrom([]int{0, 10000, 30000}).Draw(t, "local")
		for range p.Apps {
			p.At = append(p.At, rapid.IntRange(0, p.Sidecars-1).Draw(t, "at"))
		}
		troubles = append(troubles, "local cut", "local cut", "local cut all", "local silence", "sidecar", "sidecar", "kill", "kill", "kill")
	}
	p.Trouble = rapid.SliceOfN(drawAct(troubles...), 0, 20).Draw(t, "trouble")
	return p
}

// TestCompositions is the real client of several clusters at one end, in programs or in sidecars of programs that have etcd's client, and at the other the real services and the real host of
// sessions over three replicas each. Apps send requests of all kinds, and are left by their clients, while connections are
// cut at any byte, members and clusters fail, and sidecars are stopped and killed; then each answer and each event is held against what has taken effect in
// the clusters: all requests have one order over all clusters (package osc); writes took effect once, or not at all if the
// client was told so; an answer shows what its cluster had at its revision, of the keys that were asked for; transactions over
// clusters are in all of them or in none; feeds bring all events, in order, and behind those they depend on, watches of one range all of that, also from a copy; leases keep
// their keys as long as they live, and lose them when they end; what an extension answers isn't taken for done, nor what is refused in the middle to a user who has just lost a right; what is told
// of leases is so; nothing hangs, and no goroutine is left at the end.
//
//	go test ./internal/session/host -run TestCompositions -rapid.checks=1000
func TestCompositions(t *testing.T) {
	valCtxCh = nil
	drawn(t, fewPlans(t, "13", composedRuns), drawComposedPlan, func(t *testing.T, plan *composedPlan) drawnRun[composedCounts] {
		return newComposedWorld(t, plan)
	})
}

// composedCounts say whether a test has met what it is for.
type composedCounts struct {
	Asked, Answered, Unknown, NotDone, Refused, Overtaken, Closed, Spans, Across, Mirrored, Events, Followed, Told, Leases, Looks, Lost, Expired, Ended, Compacted, Resized, Extended, Denied, Ordered, Far, Restarted, Killed int
}

// composedWorld is one run.
type composedWorld struct {
	findings
	t         *testing.T
	plan      *composedPlan
	rng       *rand.Rand // of the troubles
	roads     roads
	clusters  []*simCluster
	begun     time.Time
	roots     []*compose.Client
	apps      []*composedApp
	counts    composedCounts
	done      []effects // by cluster
	resizers  sync.WaitGroup
	extending turn
	last      atomic.Int64 // number of what has happened
	forks     atomic.Int64
	calm      atomic.Bool // nothing breaks any more

	local    *wires // between programs and sidecars
	sidecars []*simSidecar
	far      []*farClient   // one of each sidecar first
	dead     sync.WaitGroup // sidecars that were killed

	mu     sync.Mutex
	said   []string
	dialed map[int64]int64 // when the connection of each client was, if it is in a sidecar
}

func newComposedWorld(t *testing.T, plan *composedPlan) *composedWorld {
	w := &composedWorld{t: t, plan: plan, rng: rand.New(rand.NewPCG(plan.Seed, 5)), roads: newRoads(len(plan.Kinds)), begun: time.Now(), extending: make(turn, 1), dialed: map[int64]int64{}}
	w.local = newWires(plan.Seed+7, time.Duration(plan.Slow)*time.Millisecond)
	for i := range plan.Kinds {
		w.clusters = append(w.clusters, newSimCluster(t, i, plan.Seed, plan.Slow, plan.Pause))
	}
	return w
}

// next numbers what happens, in its order.
func (w *composedWorld) next() int64 { return w.last.Add(1) }

func (w *composedWorld) now() int64 { return int64(time.Since(w.begun)) }

// within does what must not hang.
func (w *composedWorld) within(what string, do func()) {
	w.findings.within(what, composedHang, w.story, do)
}

// config is what a client of all clusters is made of, with connections of its own.
func (w *composedWorld) config(over func(*simCluster) []grpc.DialOption) compose.Config {
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}, SpanRanges: true, Timeout: composedTimeout, DialTimeout: composedTimeout / 4}
	for i, c := range w.clusters {
		one := compose.Cluster{Kind: w.plan.Kinds[i], DialOptions: over(c)}
		for _, s := range c.rig.servers {
			one.Endpoints = append(one.Endpoints, s.endpoint())
		}
		if w.plan.Users {
			one.Username, one.Password = composedUser, clientPassword
		}
		if n := w.plan.Near[i]; n > 0 {
			one.Near = one.Endpoints[n-1 : n]
		}
		cfg.Clusters[c.name] = one
	}
	for _, r := range w.roads {
		route := compose.Route{Prefix: r.prefix, Cluster: w.clusters[r.cluster].name, Strip: r.strip, Transactions: r.locks}
		if r.mirrored && w.plan.Mirror {
			cfg.Local = w.clusters[1].name
			route.Mirrors = []string{cfg.Local}
		}
		cfg.Routes = append(cfg.Routes, route)
	}
	return cfg
}

// composition is a client of all clusters.
func (w *composedWorld) composition() *compose.Client {
	c, err := compose.New(w.config(func(c *simCluster) []grpc.DialOption { return c.rig.over(c.wires) }))
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roots = append(w.roots, c)
	return c
}

// run lets everything happen.
func (w *composedWorld) run() {
	for _, c := range w.clusters {
		c.start(w.t, keptKey, composedHang)
		if w.plan.Users {
			c.addUser()
		}
	}
	var copying sync.WaitGroup
	copied, over := context.WithCancel(context.Background())
	first := w.composition()
	if w.plan.Mirror && w.plan.Sidecars == 0 {
		copying.Go(func() { _ = first.Mirror(copied, compose.MirrorOptions{Interval: 20 * time.Millisecond}) })
	}
	for i := range w.plan.Sidecars {
		s := w.newSidecar(i)
		s.begin()
		w.sidecars = append(w.sidecars, s)
		w.newFarClient(s)
	}
	for i := range w.plan.Apps {
		root := first
		if w.plan.Alone[i] && w.plan.Sidecars == 0 {
			root = w.composition()
		}
		w.apps = append(w.apps, w.newComposedApp(i, root))
	}
	w.local.live(w.plan.Local)
	w.counts.Far += min(1, w.plan.Sidecars)
	for _, c := range w.clusters {
		c.wires.live(w.plan.Lives)
	}
	var busy sync.WaitGroup
	for i, a := range w.apps {
		busy.Go(func() {
			for _, do := range w.plan.Apps[i] {
				a.run(do)
			}
		})
	}
	if w.plan.Extends != "" {
		w.extend(w.rng)
	}
	if w.plan.Users {
		w.deny(w.clusters[w.rng.IntN(2)], w.rng)
	}
	for _, do := range w.plan.Trouble {
		w.trouble(do)
	}
	busy.Wait()
	w.calm.Store(true)
	for _, c := range w.clusters {
		c.wires.live(0)
	}
	w.local.live(0)
	w.resizers.Wait()
	time.Sleep(3 * composedTimeout)
	for _, a := range w.apps {
		busy.Go(a.finish)
	}
	busy.Wait()
	over()
	w.within("a worker of mirrors", copying.Wait)
	for _, root := range w.roots {
		w.within("the end of a client", func() { _ = root.Close() })
	}
	w.endFar()
	for _, c := range w.clusters {
		c.stop()
		w.counts.Resized += int(c.rig.counts.resized.Load())
	}
	time.Sleep(2 * composedTimeout)
	leftover(func(g string) { w.found("a goroutine is left: %s", g) })
}

// trouble is one thing that happens to a cluster.
func (w *composedWorld) trouble(do act) {
	rng := rand.New(rand.NewPCG(uint64(do.X), 3))
	c := w.clusters[rng.IntN(len(w.clusters))]
	s := c.rig.servers[rng.IntN(3)]
	w.said = append(w.said, fmt.Sprintf("%v %s of server %d of %s", time.Since(w.begun), do.What, s.id, c.name))
	switch do.What {
	case "revoke":
		w.revoke(c, w.apps[rng.IntN(len(w.apps))])
	case "deny":
		w.deny(c, rng)
	case "extend":
		w.extend(rng)
	case "resize":
		to, drains := 1+rng.IntN(4), rng.IntN(2) == 0
		w.resizers.Go(func() { c.rig.resize(to, drains, &w.calm) })
	case "compact":
		rev := max(1, c.ledger.reached.Load()-rng.Int64N(8))
		raise(&c.ledger.compacted, rev)
		s.process.Load().core.Load().propose(command.Compact, &pb.CompactionRequest{Revision: rev}, func(replica.Outcome) {})
	case "local cut", "local cut all", "local silence", "sidecar", "kill":
		w.troubleFar(do.What, w.sidecars[rng.IntN(len(w.sidecars))], rng)
	default:
		c.trouble(do.What, s, rng, composedTimeout)
	}
	time.Sleep(time.Duration(do.Pause) * 5 * time.Millisecond)
}

func (w *composedWorld) counted() composedCounts { return w.counts }

// story is all that was asked, with the answers.
func (w *composedWorld) story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", w.plan.Kinds)
	for _, a := range w.apps {
		for _, d := range a.deeds {
			fmt.Fprintf(&b, "%5d app %d: %v\n", d.n, a.id, d)
		}
		for _, v := range a.watches {
			fmt.Fprintf(&b, "%5d app %d: %v\n", v.n, a.id, v)
		}
		for _, h := range a.leases {
			fmt.Fprintf(&b, "      app %d: %v\n", a.id, h)
		}
		for _, v := range a.tails {
			fmt.Fprintf(&b, "%5d app %d: %v\n", v.n, a.id, v)
		}
	}
	return b.String() + strings.Join(w.said, "\n")
}

// cluster is the number of the cluster with a name.
func (w *composedWorld) cluster(name string) int {
	for i, c := range w.clusters {
		if c.name == name {
			return i
		}
	}
	return -1
}
