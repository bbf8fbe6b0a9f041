package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

// world is a correct service in memory, except for the fault.
type world struct {
	mu      sync.Mutex
	fault   string
	n       int64
	items   []string
	here    int
	open    chan struct{}
	leader  chan struct{} // holds a token while there is no leader
	removed int
}

func newWorld(fault string) *world {
	w := &world{fault: fault, open: make(chan struct{}), leader: make(chan struct{}, 1)}
	w.leader <- struct{}{}
	return w
}

type inMemory struct {
	*world
	tally     recipe.Tally
	threshold int
}

func (k *inMemory) Tally() *recipe.Tally    { return &k.tally }
func (k *inMemory) Close() error            { return nil }
func (k *inMemory) Counter() recipe.Counter { return k }
func (k *inMemory) Queue() recipe.Queue     { return k }
func (k *inMemory) Value(context.Context) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault == "value is behind" {
		return k.n - 1, nil
	}
	return k.n, nil
}

func (k *inMemory) Election(context.Context, string) (recipe.Election, error) { return k, nil }

func (k *inMemory) Barrier(_ string, threshold int) recipe.Barrier {
	return &inMemory{world: k.world, threshold: threshold}
}

func (k *inMemory) Reset(context.Context, string, int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n, k.items, k.here, k.open = 0, nil, 0, make(chan struct{})
	return nil
}

func (k *inMemory) Increment(context.Context) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	switch {
	case k.fault == "same value twice" && k.n == 20:
		return 19, nil
	case k.fault == "lost increment" && k.n == 20:
		k.n--
		return 20, nil
	}
	return k.n, nil
}

func (k *inMemory) Add(_ context.Context, element string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.items = append(k.items, element)
	return nil
}

func (k *inMemory) Remove(context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed++
	head := k.items[0]
	if k.fault != "element stays" || k.removed != 20 {
		k.items = k.items[1:]
	}
	if k.fault == "element of no client" && k.removed == 20 {
		return "c99-000000", nil
	}
	return head, nil
}

func (k *inMemory) Enter(ctx context.Context) error {
	k.mu.Lock()
	k.here++
	need, open := k.threshold, k.open
	if k.fault == "opens early" {
		need--
	}
	if k.here == need {
		close(open)
	}
	k.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *inMemory) Campaign(ctx context.Context) error {
	select {
	case <-k.leader:
		if k.fault == "two leaders" {
			k.Resign(ctx)
			time.Sleep(time.Millisecond)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *inMemory) Resign(context.Context) error {
	select {
	case k.leader <- struct{}{}:
	default:
	}
	return nil
}

// play runs a recipe for a moment with four clients.
func play(t *testing.T, name, fault string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	world := newWorld(fault)
	var kits []recipe.Kit
	for range 4 {
		kits = append(kits, &inMemory{world: world})
	}
	w, rec := newWorkload(name), &recorder{}
	require.NoError(t, w.begin(ctx, &inMemory{world: world}, kits))
	rec.record(true)
	time.AfterFunc(100*time.Millisecond, rec.stop)
	if err := w.run(ctx, rec); err != nil {
		return err
	}
	latencies, _ := rec.recorded()
	require.NotEmpty(t, latencies)
	return w.check(ctx)
}

func TestHonestServicesPass(t *testing.T) {
	for _, name := range recipe.Names {
		require.NoError(t, play(t, name, ""), name)
	}
}

// The checks detect violations.
func TestBrokenGuaranteesAreDetected(t *testing.T) {
	for _, c := range []struct{ recipe, fault, message string }{
		{"counter", "same value twice", "came twice"},
		{"counter", "lost increment", "came twice"},
		{"counter", "value is behind", "the counter stands at"},
		{"queue", "element stays", "removed twice"},
		{"queue", "element of no client", "never added"},
		{"barrier", "opens early", "had arrived"},
		{"election", "two leaders", "while client"},
	} {
		require.ErrorContains(t, play(t, c.recipe, c.fault), c.message, c.fault)
	}
}

func TestGoalsAreJudged(t *testing.T) {
	p := &plan{nodes: []int{3}, clients: []int{1, 50}, subjects: allSubjects}
	rep := &report{plan: p, cells: []cell{
		{nodes: 3, recipe: "counter", clients: 50, samples: map[string][]sample{
			etcd: {{rate: 100}}, zookeeper: {{rate: 300}}, session: {{rate: 9000}}, extension: {{rate: 5000}, {rate: 6000}, {rate: 9000}}}},
		{nodes: 3, recipe: "barrier", clients: 50, samples: map[string][]sample{
			etcd: {{p50: 10 * time.Millisecond}}, extension: {{p50: 5 * time.Millisecond}}}},
	}}
	require.Equal(t, [][]string{
		{"stoa's extension", "beside", "goal", "measured", ""},
		{"counter, 50 clients, 3 nodes", "etcd", "throughput ≥ 50x", "60.0x", "met"},
		{"counter, 50 clients, 3 nodes, session", "etcd", "throughput ≥ 50x", "90.0x", "met"},
		{"counter, 50 clients, 3 nodes", "ZooKeeper", "throughput ≥ 25x", "20.0x", "missed"},
		{"counter, 50 clients, 3 nodes, session", "ZooKeeper", "throughput ≥ 25x", "30.0x", "met"},
		{"barrier, 50 clients, 3 nodes", "etcd", "p50 ≤ 0.5x", "0.50x", "met"},
		{"barrier, 50 clients, 3 nodes", "ZooKeeper", "p50 ≤ 0.5x", "–", "not measured"},
	}, rep.goals())
}
