package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/version"
)

const (
	clientPatience = time.Minute     // in which everything is answered once all is well
	clientBudget   = 3 * time.Second // of the test, unless -rapid.checks says how often
)

// clientPlan is a drawn history: what the apps do, and what happens to them.
type clientPlan struct {
	Seed    uint64
	Apps    [][]act
	Bound   []int // to a server, 0: to none
	TTL     []int // seconds
	Level   []int
	Slow    int    // ms, of the network
	Lives   int    // bytes that connections carry
	Pause   int    // ms, of the hubs
	Count   string // the key that the extension counts in: one that stays where it is, or one that moves
	Users   bool   // each app is one
	Trouble []act
}

// calm sessions outlive every trouble.
const calmTTL = 60

func drawAct(what ...string) *rapid.Generator[act] {
	return rapid.Custom(func(t *rapid.T) act {
		return act{
			What: rapid.SampledFrom(what).Draw(t, "what"), X: rapid.Uint32().Draw(t, "x"),
			Pause: rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 3, 10, 40, 200}).Draw(t, "pause"),
		}
	})
}

func drawClientPlan(t *rapid.T) *clientPlan {
	p := &clientPlan{Seed: rapid.Uint64().Draw(t, "seed"), Slow: rapid.SampledFrom([]int{0, 1, 5, 30}).Draw(t, "slow"), Lives: rapid.SampledFrom([]int{0, 3000, 6000, 20000}).Draw(t, "lives"), Pause: rapid.SampledFrom([]int{4, 50, 200}).Draw(t, "pause"), Count: rapid.SampledFrom([]string{"a", "d"}).Draw(t, "count")}
	for i := range rapid.IntRange(1, 3).Draw(t, "apps") {
		p.Apps = append(p.Apps, rapid.SliceOfN(drawAct(
			"put", "put", "put", "put", "delete", "txn", "look", "get", "get", "get", "call", "call", "batch", "batch", "sync", "progress", "watch", "watch", "await", "unwatch", "see", "loose",
		), 20, 100).Draw(t, fmt.Sprint("app ", i)))
		p.Bound = append(p.Bound, rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "bound"))
		p.TTL = append(p.TTL, rapid.SampledFrom([]int{calmTTL, calmTTL, calmTTL, calmTTL, 2}).Draw(t, "ttl"))
		p.Level = append(p.Level, rapid.IntRange(0, 2).Draw(t, "level"))
	}
	troubles := []string{"cut", "cut", "cut", "cut", "cut all", "stall", "lead", "replace", "restart", "isolate", "unlink", "compact", "flip", "flip", "full", "revoke", "none"}
	if p.Users = rapid.Bool().Draw(t, "users"); p.Users {
		troubles = append(troubles, "deny", "deny", "deny", "allow", "allow", "password", "password", "password", "dismiss")
	}
	if rapid.Bool().Draw(t, "resizes") {
		troubles = append(troubles, "resize", "resize", "resize")
	}
	p.Trouble = rapid.SliceOfN(drawAct(troubles...), 0, 25).Draw(t, "trouble")
	return p
}

// TestClients is the real client at one end, and the real host of sessions at the other, over
// three replicas. Apps send requests of all kinds, connections are cut at any byte and servers
// fail meanwhile, and then every answer and every event is held against what has taken effect:
// each request is answered once; writes took effect once, in the order in which they were sent; reads
// show all that comes before them and nothing behind; watches bring all events, once, in order, and before
// the answers that reflect them; nothing hangs, and no goroutine is left at the end. None of this changes when the number of
// partitions does. Where apps are users, whose rights, passwords and lives end meanwhile, what takes effect they had the right to at
// that place in the log, and no session ends but of those who can't log in any more.
//
//	go test ./internal/session/host -run TestClients -rapid.checks=1000
func TestClients(t *testing.T) {
	asked, begun := drawsAsked(), time.Now()
	more := func(int) bool { return asked || time.Since(begun) <= clientBudget }
	drawn(t, more, drawClientPlan, func(t *testing.T, plan *clientPlan) drawnRun[clientCounts] { return newClientWorld(t, plan) })
}

// clientCounts say whether a test has met what it is for.
type clientCounts struct {
	Asked, Answered, Overtaken, Forgotten, TimedOut, Refused, Called, Events, Notes, Compacted, Future, Ended, Ahead, Denied, Passwords, Resized, Installed int
}

// clientWorld is one run.
type clientWorld struct {
	findings
	t          *testing.T
	plan       *clientPlan
	rig        *rig
	wires      *wires
	ledger     ledger
	rules      rulebook
	resizers   sync.WaitGroup
	apps       []*app
	counts     clientCounts
	calm       atomic.Bool // nothing breaks any more
	registered atomic.Bool

	mu    sync.Mutex
	said  []string // troubles
	loose map[*app][]*ask
}

func newClientWorld(t *testing.T, plan *clientPlan) *clientWorld {
	w := &clientWorld{
		t: t, plan: plan, loose: map[*app][]*ask{},
		wires:  newWires(plan.Seed, time.Duration(plan.Slow)*time.Millisecond),
		ledger: ledger{has: map[[2]int64]bool{}, rights: map[int64]uint64{}},
	}
	w.rig = &rig{t: t, tick: 20 * time.Millisecond, pause: time.Duration(plan.Pause) * time.Millisecond, latency: 200 * time.Microsecond, level: version.Newest, applied: w.ledger.apply, ruled: w.rules.note}
	return w
}

func (w *clientWorld) loosen(a *app, x *ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loose[a] = append(w.loose[a], x)
}

func (w *clientWorld) below(n int) int { return w.wires.below(n) }

// run lets everything happen.
func (w *clientWorld) run() {
	var links, busy sync.WaitGroup
	w.rig.start()
	var ends []func()
	for _, s := range w.rig.servers {
		for _, l := range s.links {
			links.Go(l.carry)
		}
		ends = append(ends, s.serve(w.wires))
	}
	if w.plan.Users {
		w.addUsers()
	}
	for i := range w.plan.Apps {
		w.apps = append(w.apps, w.newApp(i))
	}
	w.wires.live(w.plan.Lives)
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
	busy.Wait()
	w.calm.Store(true)
	w.wires.live(0)
	w.resizers.Wait()
	for _, a := range w.apps {
		busy.Go(a.end)
	}
	busy.Wait()
	for _, a := range w.apps {
		if err := a.c.Close(); err != nil && !errors.Is(err, context.Canceled) {
			w.found("app %d: closing its client: %v", a.id, err)
		}
	}
	for _, end := range ends {
		end()
	}
	w.rig.stop(&links)
	w.counts.Resized, w.counts.Installed = int(w.rig.counts.resized.Load()), int(w.rig.counts.installed.Load())
	time.Sleep(3 * time.Second) // less than a connection is kept that may be of use
	leftover(func(g string) { w.found("a goroutine is left: %s", g) })
}

func stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// leftover looks for goroutines of the bubble that have not ended.
func leftover(found func(string)) {
	all := strings.Split(stacks(), "\n\n")
	_, bubble, _ := strings.Cut(strings.SplitN(all[0], "\n", 2)[0], "synctest bubble ")
	for _, g := range all[1:] {
		if head, _, _ := strings.Cut(g, "\n"); strings.HasSuffix(head, "synctest bubble "+bubble) && !strings.Contains(g, "synctest.Test") {
			found(g)
		}
	}
}

func (w *clientWorld) newApp(i int) *app {
	a := &app{w: w, id: i, feed: sdk.NewFeed()}
	cfg := sdk.Config{ClientID: []string{"", "somebody"}[i%2]}
	if w.plan.Users {
		cfg = sdk.Config{Username: a.user(), Password: clientPassword}
	}
	a.c = w.rig.client(w.t, w.wires, cfg)
	opts := []sdk.SessionOption{sdk.WithTTL(time.Duration(w.plan.TTL[i]) * time.Second), sdk.WithLevel(clientLevels[w.plan.Level[i]])}
	if b := w.plan.Bound[i]; b > 0 {
		opts = append(opts, sdk.WithEndpoints(w.rig.servers[b-1].endpoint()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	var err error
	a.s, err = a.c.Session(ctx, opts...)
	require.NoError(w.t, err)
	return a
}

// gate is an extension that counts its calls.
func (p *clientPlan) gate() string {
	return strings.ReplaceAll(`return {
  scope = { "COUNT" },
  operations = { { op = "read", key = "`+calledKey+`" }, { op = "block", key = "`+awaitKey+`" } },
  read = function(r)
    local n = tonumber(get("COUNT") or "0") + 1
    put("COUNT", n)
    return n
  end,
  block = function(r)
    put("COUNT", tonumber(get("COUNT") or "0") + 1)
    block("COUNT")
  end,
}`, "COUNT", p.Count)
}

// trouble is one thing that happens to the apps.
func (w *clientWorld) trouble(do act) {
	rng := rand.New(rand.NewPCG(uint64(do.X), 3))
	s := w.rig.servers[rng.IntN(3)]
	w.said = append(w.said, fmt.Sprintf("%v %s of server %d", time.Now().Format(clock), do.What, s.id))
	switch do.What {
	case "cut":
		w.cut()
	case "stall":
		if c := w.wires.some(""); c != nil {
			c.stall(time.Duration(rng.IntN(5000)) * time.Millisecond)
		}
	case "compact":
		rev := max(1, w.ledger.answered.Load()-rng.Int64N(20))
		raise(&w.ledger.compacted, rev)
		w.propose(command.Compact, &pb.CompactionRequest{Revision: rev})
	case "flip":
		w.flip()
	case "resize":
		to, drains := 1+rng.IntN(4), rng.IntN(2) == 0
		w.resizers.Go(func() { w.rig.resize(to, drains, &w.calm) })
	case "deny", "allow", "password", "dismiss":
		w.govern(do.What, rng)
	case "revoke":
		if a := w.apps[rng.IntN(len(w.apps))]; rng.IntN(3) == 0 {
			a.revoked = true
			w.propose(command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: int64(a.s.ID())})
		}
	default:
		w.rig.strike(do.What, s, w.wires, rng, 600*time.Millisecond)
	}
	time.Sleep(time.Duration(do.Pause) * time.Millisecond)
}

// cut breaks a connection, until all is to be well.
func (w *clientWorld) cut() {
	if c := w.wires.some(""); c != nil && !w.calm.Load() {
		c.cut()
	}
}

// flip registers the extension, or removes it.
func (w *clientWorld) flip() {
	if w.registered.Swap(!w.registered.Load()) {
		w.proposeKey(command.DeleteRange, &pb.DeleteRangeRequest{Key: []byte("/em/gate")})
		return
	}
	w.proposeKey(command.Put, &pb.PutRequest{Key: []byte("/em/gate"), Value: []byte(w.plan.gate())})
}

// propose has somebody ask for something, of whom nobody waits for the answer.
func (w *clientWorld) propose(kind command.Kind, req proto.Message) {
	w.rig.servers[w.below(3)].process.Load().core.Load().propose(kind, req, func(replica.Outcome) {})
}

// proposeKey is propose for a request that is not the servers' own.
func (w *clientWorld) proposeKey(kind command.Kind, req proto.Message) {
	m := w.rig.servers[w.below(3)].process.Load().core.Load()
	body, err := proto.Marshal(req)
	require.NoError(w.t, err)
	p := m.Machine.Plan(kind, req, func() (string, int64) { return "", 0 })
	c := p.Command(kind, body)
	c.User = auth.Own
	m.Replica.Submit(&replica.Write{Command: c, Parts: p.Parts, Done: func(replica.Outcome) {}})
}

func (w *clientWorld) counted() clientCounts { return w.counts }

// story is all that was asked, with the answers.
func (w *clientWorld) story() string {
	var b strings.Builder
	for _, a := range w.apps {
		fmt.Fprintf(&b, "app %d, session %d, ended: %v\n", a.id, a.s.ID(), a.s.Err())
		for i, x := range a.asks {
			fmt.Fprintf(&b, "%4d %v: at %d, %d keys, %v; sent at %v, answered at %v; effect %d; told %d\n", i+1, x, x.rev, len(x.kvs), x.err, x.at.Format(clock), x.heard.Format(clock), a.effect(x), x.told)
		}
		for i, n := range a.notes {
			var revs []int64
			for _, e := range n.Events {
				revs = append(revs, e.Kv.ModRevision)
			}
			of := -1
			if v := a.viewOf(n.Watch); v != nil {
				of = v.index + 1
			}
			fmt.Fprintf(&b, "     note %d at %v: watch %d, %v, %v\n", i, n.at.Format(clock), of, revs, n.Err)
		}
	}
	return b.String() + strings.Join(w.said, "\n")
}

const clock = "05.000000"
