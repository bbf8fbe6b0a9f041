package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

const (
	sidecarRuns    = 5 // unless -rapid.checks says how many
	sidecarTimeout = 2 * time.Second
	sidecarHang    = 40 * time.Second // what takes longer hangs
	signOfLife     = 10 * time.Second // the time between two of a session that isn't used
)

// sidecarPlan is a drawn history of local clients of one or two sidecars.
type sidecarPlan struct {
	Seed     uint64
	Sidecars []sidecarSettings
	Slow     int   // ms, of the networks
	Lives    []int // bytes that connections to the cluster carry, and local ones
	Pause    int   // ms, of the hubs
	Large    int   // bytes of values, about; 0: few
	Apps     [][]act
	At       []int // the sidecar of each app
	Users    bool
	Own      []bool // the app is a user by itself
	Trouble  []act
}

func drawSidecarPlan(t *rapid.T) *sidecarPlan {
	p := &sidecarPlan{
		Seed: rapid.Uint64().Draw(t, "seed"), Slow: rapid.SampledFrom([]int{0, 1, 5, 30}).Draw(t, "slow"),
		Pause: rapid.SampledFrom([]int{20, 50, 200}).Draw(t, "pause"),
	}
	p.Large = rapid.SampledFrom([]int{0, 0, 3000, 20000}).Draw(t, "large")
	for _, of := range []string{"cluster", "clients"} {
		p.Lives = append(p.Lives, (1+p.Large/3000)*rapid.SampledFrom([]int{0, 10000, 30000, 100000}).Draw(t, of))
	}
	for range rapid.IntRange(1, 2).Draw(t, "sidecars") {
		p.Sidecars = append(p.Sidecars, drawSidecar(t))
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "apps") {
		p.Apps = append(p.Apps, rapid.SliceOfN(drawAct(
			"put", "put", "put", "put", "get", "get", "get", "get", "range", "range", "delete", "delete range", "txn", "txn", "read txn", "burst", "watch", "watch", "unwatch",
			"stream", "stream", "stream", "stream", "stream", "compact", "grant", "grant", "keep alive", "keep alive", "keep alive", "revoke", "queue", "queue", "queue",
		), 20, 80).Draw(t, fmt.Sprint("app ", i)))
		p.Own = append(p.Own, rapid.Bool().Draw(t, "own user"))
		p.At = append(p.At, rapid.IntRange(0, len(p.Sidecars)-1).Draw(t, "at"))
	}
	troubles := []string{
		"cut", "cut", "cut all", "silence", "refuse", "lead", "replace", "restart", "isolate", "unlink", "full", "revoke", "revoke", "flip",
		"local cut", "local cut", "local cut all", "local silence", "sidecar", "kill", "kill", "none",
	}
	if p.Users = rapid.SampledFrom([]bool{false, false, true}).Draw(t, "users"); p.Users {
		troubles = append(troubles, "deny", "deny", "deny", "allow", "allow", "password", "password", "dismiss", "dismiss", "hire", "hire", "hire")
	}
	least := 0
	if p.Users {
		least = 6
		p.Slow = max(1, p.Slow) // what is tried again at once takes time
	}
	p.Trouble = rapid.SliceOfN(drawAct(troubles...), least, 20).Draw(t, "trouble")
	return p
}

// TestSidecars is etcd's client at one end, one or two real sidecars in between, and at the other end the real services and the real
// host of sessions over three replicas. Programs write, read and watch, while connections on both sides are cut at any byte or are silent,
// and servers and sidecars fail, are stopped or killed; then each answer and each event is held against what has taken effect in the cluster: a write took effect
// once, or not at all if its client was told so, between its call and its answer; what is read is what there was at the revision of the
// answer, and linearizable reads show all that anybody had been told before; watches bring all events, once, in order, and progress
// behind them; leases live as long as was told, and no longer than they are renewed; nothing is outside of a namespace; nothing fails
// without a reason or hangs, and no goroutine is left at the end.
//
//	go test ./internal/session/host -run TestSidecars -rapid.checks=1000
func TestSidecars(t *testing.T) {
	valCtxCh = nil
	drawn(t, fewPlans(t, "1", sidecarRuns), drawSidecarPlan, func(t *testing.T, plan *sidecarPlan) drawnRun[sidecarCounts] {
		return newSidecarWorld(t, plan)
	})
}

// sidecarCounts say whether a test has met what it is for.
type sidecarCounts struct {
	Asked, Answered, Unknown, Refused, Effects, Watches, Streams, Events, Progress, Periodic, Compacted, Restarted, Killed, Outlived, Leases, Renewed, Expired, Seen, Queued, Held, Observed, Ruled, Governed int
}

// sidecarWorld is one run.
type sidecarWorld struct {
	findings
	t        *testing.T
	plan     *sidecarPlan
	cluster  *simCluster
	local    *wires // between clients and sidecars
	begun    time.Time
	sidecars []*simSidecar
	apps     []*sidecarApp
	counts   sidecarCounts
	last     atomic.Int64 // number of what has happened
	noted    atomic.Int64 // when the latest response of a watch has come
	calm     atomic.Bool  // nothing breaks any more

	calmed atomic.Int64   // since when
	dead   sync.WaitGroup // sidecars that were killed
	ruling sync.WaitGroup // changes of users that have no answer yet

	registered bool // an extension

	rules rulebook
	names []string // of users

	mu     sync.Mutex
	said   []string
	leases []*sidecarLease           // of all apps
	ends   map[clientv3.LeaseID]bool // leases that were revoked

	troubles [][2]time.Duration // when they were, and were over
}

func newSidecarWorld(t *testing.T, plan *sidecarPlan) *sidecarWorld {
	w := &sidecarWorld{
		t: t, plan: plan, begun: time.Now(), cluster: newSimCluster(t, 0, plan.Seed, plan.Slow, plan.Pause),
		ends: map[clientv3.LeaseID]bool{}, local: newWires(plan.Seed+1, time.Duration(plan.Slow)*time.Millisecond),
	}
	w.cluster.rig.options.ProgressInterval = 300 * time.Millisecond
	w.cluster.rig.ruled = w.rules.note
	return w
}

// next numbers what happens, in its order.
func (w *sidecarWorld) next() int64 { return w.last.Add(1) }

func (w *sidecarWorld) now() time.Duration { return time.Since(w.begun) }

func (w *sidecarWorld) within(what string, do func()) {
	w.findings.within(what, sidecarHang, w.story, do)
}

// run lets everything happen.
func (w *sidecarWorld) run() {
	w.cluster.start(w.t, keptKey, sidecarHang)
	if w.plan.Users {
		w.addUsers()
	}
	for i, settings := range w.plan.Sidecars {
		s := w.newSidecar(i, settings)
		s.begin()
		w.sidecars = append(w.sidecars, s)
	}
	for i, at := range w.plan.At {
		w.apps = append(w.apps, w.newSidecarApp(i, w.sidecars[at]))
	}
	w.live(w.plan.Lives[0], w.plan.Lives[1])
	var busy sync.WaitGroup
	for i, a := range w.apps {
		busy.Go(func() {
			for _, do := range w.plan.Apps[i] {
				a.run(do)
			}
		})
	}
	for _, do := range w.plan.Trouble {
		w.trouble(do)
	}
	w.reinstate() // etcd's client waits for its watch to be opened as long as the sidecar's user can't log in
	// Connections may carry less than a watch has to bring at once, and a program wait for another watch of the same stream.
	longer := time.AfterFunc(sidecarHang, func() { w.live(0, 0) })
	busy.Wait()
	longer.Stop()
	w.calm.Store(true)
	w.calmed.Store(int64(w.now()))
	w.live(0, 0)
	time.Sleep(3 * sidecarTimeout)
	if w.plan.Users {
		time.Sleep(signOfLife)
	}
	for _, a := range w.apps {
		busy.Go(a.finish)
	}
	busy.Wait()
	for _, a := range w.apps {
		busy.Go(a.settle)
	}
	busy.Wait()
	w.apps[0].expire()
	for _, a := range w.apps {
		w.within("the end of a client", func() { _ = a.c.Close() })
	}
	for _, s := range w.sidecars {
		s.end(0)
	}
	w.within("the end of a killed sidecar", w.dead.Wait)
	w.outlive()
	w.cluster.stop()
	time.Sleep(2 * sidecarTimeout)
	leftover(func(g string) { w.found("a goroutine is left: %s", g) })
}

// sessionsEnd is when sessions of sidecars that were killed are over: their leases have 37 s.
const sessionsEnd = 45 * time.Second

// outlive finds, in some of the runs that have killed a sidecar, that no lease is left of any, nor of a program.
func (w *sidecarWorld) outlive() {
	if w.counts.Killed == 0 || w.plan.Seed%4 != 0 {
		return
	}
	w.counts.Outlived++
	time.Sleep(time.Duration(w.calmed.Load()) + sessionsEnd - w.now())
	left, err := w.cluster.rig.servers[0].process.Load().core.Load().Machine.Granted(true)
	if err != nil || len(left) > 0 {
		w.found("leases are left, of nobody: %v, %v", left, err)
	}
}

func sidecarAddress(i int) string { return fmt.Sprintf("10.0.1.%d:23790", i+1) }

func (w *sidecarWorld) live(cluster, clients int) {
	w.cluster.wires.live(cluster)
	w.local.live(clients)
}

// trouble is one thing that happens to the cluster or to a sidecar.
func (w *sidecarWorld) trouble(do act) {
	rng := rand.New(rand.NewPCG(uint64(do.X), 3))
	server, s := w.cluster.rig.servers[rng.IntN(3)], w.sidecars[rng.IntN(len(w.sidecars))]
	w.said = append(w.said, fmt.Sprintf("%v %s of server %d or sidecar %s", w.now(), do.What, server.id, s.name))
	begun := w.now()
	defer func() { w.troubles = append(w.troubles, [2]time.Duration{begun, w.now()}) }()
	switch do.What {
	case "local cut":
		if c := w.local.some(""); c != nil {
			c.cut()
		}
	case "local cut all":
		w.local.cutAll(s.name)
	case "local silence":
		w.local.stallAll(time.Duration(rng.IntN(2 * int(sidecarTimeout))))
	case "revoke":
		w.revokeSessions(rng)
	case "flip":
		w.flip()
	case "deny", "allow", "password", "dismiss", "hire":
		w.rule(do.What, rng)
	case "sidecar":
		s.end(time.Duration(rng.IntN(2 * int(sidecarTimeout))))
		time.Sleep(time.Duration(rng.IntN(int(sidecarTimeout))))
		s.begin()
		w.counts.Restarted++
	case "kill":
		s.kill()
		time.Sleep(time.Duration(rng.IntN(int(sidecarTimeout))))
		s.begin()
		w.counts.Killed++
	default:
		w.cluster.trouble(do.What, server, rng, sidecarTimeout)
	}
	time.Sleep(time.Duration(do.Pause) * 5 * time.Millisecond)
}

// revokeSessions ends the sessions of sidecars, whose requests may be under way.
func (w *sidecarWorld) revokeSessions(rng *rand.Rand) {
	core := w.cluster.rig.servers[rng.IntN(3)].process.Load().core.Load()
	all, err := core.Machine.Granted(true)
	if err != nil {
		return
	}
	if rng.IntN(3) > 0 { // what is under way then takes effect, and its answers are lost
		w.cluster.wires.stallAnswers(2 * sidecarTimeout)
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		defer w.cluster.wires.cutAll("")
	}
	for _, l := range all {
		if !slices.ContainsFunc(w.granted(), func(o *sidecarLease) bool { return int64(o.id) == l.ID }) {
			w.revoked(clientv3.LeaseID(l.ID)) // one whose grant is not answered yet
			core.propose(command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: l.ID}, func(replica.Outcome) {})
		}
	}
}

// granted are the leases of the apps.
func (w *sidecarWorld) granted() []*sidecarLease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.leases)
}

// flip registers an extension that is for none of the keys, or removes it.
func (w *sidecarWorld) flip() {
	f, ctx, key := front{s: w.cluster.rig.servers[0]}, own(context.Background()), []byte("/em/none")
	if w.registered = !w.registered; w.registered {
		_, _ = f.Put(ctx, &pb.PutRequest{Key: key, Value: []byte((&clientPlan{Count: "zz"}).gate())})
		return
	}
	_, _ = f.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key})
}

func (w *sidecarWorld) counted() sidecarCounts { return w.counts }

// story is all that was asked, with the answers.
func (w *sidecarWorld) story() string {
	var b strings.Builder
	for _, s := range w.sidecars {
		fmt.Fprintf(&b, "%s: %+v\n", s.name, s.sidecarSettings)
	}
	for _, l := range w.leases {
		fmt.Fprintf(&b, "lease %d of %v, revoked %v: %v\n", l.id, l.ttl, l.revoked, l.renewed)
	}
	for _, a := range w.apps {
		for _, d := range a.calls {
			fmt.Fprintf(&b, "%5d app %d: %v\n", d.n, a.id, d)
		}
		for _, d := range a.queues {
			fmt.Fprintf(&b, "%5d app %d: %v\n", d.n, a.id, d)
		}
		for _, o := range a.observed {
			fmt.Fprintf(&b, "      app %d: %v: %v\n", a.id, o, o.notes)
		}
		for _, v := range a.watches {
			fmt.Fprintf(&b, "%5d app %d: %v\n", v.n, a.id, v)
		}
		for _, v := range a.streams {
			fmt.Fprintf(&b, "%5d app %d: %v\n", v.n, a.id, v)
			for _, one := range v.asked {
				fmt.Fprintf(&b, "%5d app %d:     %v\n", one.n, a.id, one)
			}
			for _, r := range v.got {
				fmt.Fprintf(&b, "%5d app %d:     %v\n", r.n, a.id, r)
			}
		}
	}
	for _, r := range w.rules.rules {
		fmt.Fprintf(&b, "%v: revision %d of users, %v\n", r.since.Sub(w.begun), r.Revision, r.Enabled)
		for _, name := range w.names {
			if u := r.User(name); u != nil {
				fmt.Fprintf(&b, "    %s: password of %d, %v\n", name, u.Credential, r.Role(name).Permissions)
			}
		}
	}
	return b.String() + strings.Join(w.said, "\n")
}
