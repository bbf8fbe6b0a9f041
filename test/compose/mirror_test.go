package compose

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/client/mirror"
	mirrorworker "github.com/stoa-kv/stoa/client/mirror/worker"
	"github.com/stoa-kv/stoa/test/compose/osc"
	"github.com/stoa-kv/stoa/test/process"
)

// startEach starts a cluster of one server of each kind.
func startEach(t *testing.T, servers ...string) clusters {
	t.Helper()
	var all clusters
	for _, server := range servers {
		bin, err := process.Choose(server)
		if server == "stoa" {
			bin, err = process.UnderTest()
		}
		require.NoError(t, err)
		c := process.NewT(t, process.Spec{Binary: bin, Partitions: 2})
		require.NoError(t, c.Start(t.Context()))
		all = append(all, &cluster{Cluster: c, voters: slices.Clone(c.Servers)})
	}
	return all
}

// mirrored is a composition in which each cluster is a mirror of the next one's keys.
func (all clusters) mirrored(t *testing.T, local string, options ...grpc.DialOption) *compose.Client {
	t.Helper()
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}, Timeout: 2 * time.Second, SpanRanges: true, Local: local}
	for i, c := range all {
		cfg.Clusters[name(i)] = compose.Cluster{Endpoints: urls(c.voters), DialOptions: options}
		mirrors := []string{name((i + len(all) - 1) % len(all))}
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: prefix(i), Cluster: name(i), Mirrors: mirrors})
	}
	c, err := compose.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Clients write and read at home and at mirrors, while executors are killed, two at a time and
// cut off: the history is consistent. Each cluster is the mirror of another one, of the other
// kind; a transaction of two keys is more than some executors can write in one. However slow the machine
// is, it goes on until there was enough of all that, and the clients pause for as long as a mirror needs to
// follow them.
func TestMirrors(t *testing.T) {
	const least = 40 * time.Millisecond
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	all := startEach(t, "stoa", "etcd")
	h := osc.NewHistory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pause := new(atomic.Int64)
	pause.Store(int64(least))
	var crew []*worker
	sites := []*compose.Client{all.mirrored(t, name(0)), all.mirrored(t, name(1)), all.mirrored(t, "")}
	for i := range *workers {
		site := sites[i%len(sites)].Fork() // beside others, which share what is known of the mirrors
		crew = append(crew, &worker{
			id: i, by: oneOrder(site, len(all)), h: h, clusters: len(all), rnd: rand.New(rand.NewPCG(seed, uint64(i))),
			written: int(seed % 1e9 * 1e6), pause: pause,
		})
	}
	var work sync.WaitGroup
	done := &progress{}
	work.Go(func() { all.executors(t, ctx, rand.New(rand.NewPCG(seed, 1000)), done) })
	for _, w := range crew {
		work.Go(func() { w.run(ctx) })
	}
	enough := func() bool {
		s := statsOf(crew)
		return s.Mirrored >= 50 && s.Stale > 0 && done.elected.Load() >= 6 && done.cut.Load() >= 6
	}
	for begun, before := time.Now(), int64(0); ; {
		sleep(ctx, 250*time.Millisecond)
		took := time.Since(begun)
		if took > *loadTime && enough() || took > *loadTime+4*time.Minute {
			break
		}
		// What a client's burst has seen of home first, the mirror must have before the burst ends.
		mirrored := statsOf(crew).Mirrored
		if mirrored < before+5 {
			pause.Store(min(2*pause.Load(), int64(2*time.Second)))
		} else {
			pause.Store(max(pause.Load()/2, int64(least)))
		}
		before = mirrored
	}
	cancel()
	work.Wait()
	for _, w := range crew {
		require.Empty(t, w.errs)
	}
	t.Logf("%+v; executors were elected %d times, and %d of their connections cut", statsOf(crew), done.elected.Load(), done.cut.Load())
	require.True(t, enough(), "not enough has happened")
	require.NoError(t, all.check(t, h))
	for home := range all {
		newMirrorTest(t, all, home).follow("in the end")
	}
}

// statsOf is the sum of what clients have counted.
func statsOf(crew []*worker) (sum compose.Stats) {
	for _, w := range crew {
		s := w.by[0].Stats()
		sum.Reads, sum.Mirrored, sum.Stale, sum.Syncs = sum.Reads+s.Reads, sum.Mirrored+s.Mirrored, sum.Stale+s.Stale, sum.Syncs+s.Syncs
	}
	return sum
}

// progress is what executors have done.
type progress struct{ steps, elected, cut atomic.Int64 }

func (p *progress) observe(compose.Mirror) mirrorworker.Observer {
	return mirrorworker.Observer{
		Elected:   func(mirror.Mark, bool) { p.elected.Add(1) },
		Copied:    func(int64, int64, int64) { p.steps.Add(1) },
		Following: func(mirrorworker.Status) { p.steps.Add(1) },
	}
}

// wait waits for a time and then, at most until ctx ends, for steps of any executor: on a slow machine executors
// that live for a fixed time never get anywhere.
func (p *progress) wait(ctx context.Context, d time.Duration, steps int64) bool {
	before := p.steps.Load()
	for ok := sleep(ctx, d); ; ok = sleep(ctx, 5*time.Millisecond) {
		if !ok || p.steps.Load() >= before+steps {
			return ok
		}
	}
}

// executors runs one or two executors of all mirrors at a time, seldom three, which come and go.
func (all clusters) executors(t *testing.T, ctx context.Context, rnd *rand.Rand, done *progress) {
	var work sync.WaitGroup
	defer work.Wait()
	alive := make(chan struct{}, 3)
	run := func(life time.Duration, steps int64) {
		lines, most := &wires{}, []int{2, 64}[rnd.IntN(2)]
		c := all.mirrored(t, "", grpc.WithContextDialer(lines.dial))
		living, cancel := context.WithCancel(ctx)
		work.Go(func() {
			defer cancel()
			done.wait(living, life, steps)
		})
		work.Go(func() {
			defer func() { <-alive }()
			defer cancel()
			if err := c.Mirror(living, compose.MirrorOptions{MaxTxnOps: most, Observe: done.observe}); err != nil {
				t.Errorf("an executor has ended: %v", err)
			}
		})
		cuts := rand.New(rand.NewPCG(rnd.Uint64(), 1))
		work.Go(func() {
			for done.wait(living, time.Duration(50+cuts.IntN(400))*time.Millisecond, 2) {
				done.cut.Add(int64(lines.cut(cuts)))
			}
		})
	}
	for {
		select {
		case alive <- struct{}{}:
		case <-ctx.Done():
			return
		}
		run(time.Duration(200+rnd.IntN(800))*time.Millisecond, int64(rnd.IntN(8)))
		sleep(ctx, time.Duration(100+rnd.IntN(1400))*time.Millisecond) // two, or none for a while
	}
}

// mirrorMutants are seeded bugs of mirrors, each of which a test has to find: TestMirrors, unless said
// otherwise. Package mirror's tests have more on a model of the target.
var mirrorMutants = []struct {
	name, test string
	edits      []seededEdit
}{
	{"the mark is not compared with what the client has seen", "TestMirrorPipelines", []seededEdit{
		{"client/compose/view.go", "m != nil && m.Header.Revision >= floor:", "m != nil && floor >= 0:"},
		{"client/compose/calls.go", "if a.isBelow(e.l.floor.Load(), r) {", "if e.l.view == nil && a.isBelow(e.l.floor.Load(), r) {"},
		{"client/compose/glance.go", "if g.home.Header.Revision < e.l.floor.Load() {", "if g.home.Header.Revision < 0 {"},
		{"client/compose/place.go", "p.mark.Source == home && p.mark.Revision >= floor", "p.mark.Source == home && floor >= 0"},
	}},
	{"keys are read without their mark", "", []seededEdit{{
		"client/compose/view.go",
		"	m, over, err := near.ask(ctx, atMark(r.mark, asked), by)\n",
		"	both := atMark(r.mark, asked)\n" +
			"	early, _, err := near.ask(ctx, &pb.TxnRequest{Success: both.Success[1:]}, by)\n" +
			"	if err != nil {\n" +
			"		return nil, v.failed(err)\n" +
			"	}\n" +
			"	time.Sleep(5 * time.Millisecond)\n" +
			"	m, over, err := near.ask(ctx, &pb.TxnRequest{Success: both.Success[:1]}, by)\n" +
			"	if err == nil {\n" +
			"		m.(*pb.TxnResponse).Responses = append(m.(*pb.TxnResponse).Responses, early.(*pb.TxnResponse).Responses...)\n" +
			"	}\n",
	}}},
	{"a glance shows less than one before it", "TestMirrorPipelines", []seededEdit{
		{"client/compose/glance.go", "if g.home.Header.Revision < e.l.floor.Load() {", "if g.home.Header.Revision < 0 {"},
		{"client/compose/calls.go", "if a.isBelow(e.l.floor.Load(), r) {", "if e.l.view == nil && a.isBelow(e.l.floor.Load(), r) {"},
	}},
	{"a key that was changed behind a place is read there", "TestMirrorPipelines", []seededEdit{
		{"client/compose/place.go", "len(a.Kvs) == 1 && a.Kvs[0].ModRevision <= p.at", "len(a.Kvs) == 1"},
	}},
	{"a place is at a revision before its mark", "TestMirrorPipelines", []seededEdit{
		{"client/compose/view.go", "p := &place{at: a.Header.GetRevision(), over", "p := &place{at: a.Header.GetRevision() - 1, over"},
		{"client/compose/view.go", "&place{at: a.Header.GetRevision(), over: over, asked: now}, a)", "&place{at: a.Header.GetRevision() - 1, over: over, asked: now}, a)"},
	}},
	{"a split revision is read", "TestMirrorSplitRevision", []seededEdit{
		{"client/compose/view.go", "p.mark.Phase != mirror.At ||", "p.mark.Phase != mirror.At && p.mark.Phase != mirror.Partial ||"},
	}},
	{"an executor's writes don't compare the mark", "TestMirrorStaleExecutor", []seededEdit{
		{"client/mirror/cluster/target.go", ".If(conditions...)", ".If(conditions[:0]...)"},
	}},
}

type seededEdit struct{ file, find, replace string }

// Each mutation has to be found by its test. Without -all the tests of mutations don't run, and it is checked only that each
// can be made.
func TestMirrorMutants(t *testing.T) {
	root, err := process.Root()
	require.NoError(t, err)
	for _, m := range mirrorMutants {
		t.Run(m.name, func(t *testing.T) {
			list := seed(t, root, m.edits)
			if !*allCases {
				return
			}
			test := cmp.Or(m.test, "TestMirrors")
			for attempt := range 10 {
				cmd := exec.Command("go", "test", "-count=1", "-overlay", list, "-run", "^"+test+"$", "./test/compose", "-load=4s")
				cmd.Dir = root
				out, err := cmd.CombinedOutput()
				if at := strings.Index(string(out), "INCONSISTENT"); err != nil && at >= 0 {
					t.Logf("found at attempt %d: %.600s", attempt+1, out[at:])
					return
				}
				require.NotContains(t, string(out), "[build failed]", "%s", out)
				t.Logf("attempt %d: %.300s", attempt+1, out)
			}
			t.Error("not found")
		})
	}
}

// seed writes edited files, and what go test -overlay reads. The checkout stays as it is. Of each edit the text must
// occur once, in the file with the edits before.
func seed(t *testing.T, root string, edits []seededEdit) (list string) {
	dir, replaced := t.TempDir(), map[string]string{}
	for i, e := range edits {
		file := filepath.Join(root, e.file)
		source, err := os.ReadFile(cmp.Or(replaced[file], file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(source), e.find), "%s: %s", e.file, e.find)
		replaced[file] = filepath.Join(dir, fmt.Sprintf("changed%d.go", i))
		require.NoError(t, os.WriteFile(replaced[file], []byte(strings.Replace(string(source), e.find, e.replace, 1)), 0o644))
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	require.NoError(t, err)
	list = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o644))
	return list
}

// A mirror has what home had at its mark, whatever happens to both: compaction at home while no
// executor runs, a target that loses its data, keys that are deleted meanwhile, revisions that
// are larger than a transaction. Its readers get every key as home has it.
func TestMirrorRecovers(t *testing.T) {
	for _, kinds := range [][]string{{"stoa", "etcd"}, {"etcd", "stoa"}} {
		t.Run(kinds[0]+" in "+kinds[1], func(t *testing.T) {
			all := startEach(t, kinds...)
			m := newMirrorTest(t, all, 0)
			var puts []clientv3.Op
			for i := range 100 {
				puts = append(puts, clientv3.OpPut(fmt.Sprintf("%skey%02d", prefix(0), i), "first"))
			}
			_, err := m.home.Txn(t.Context()).Then(puts...).Commit()
			require.NoError(t, err)
			m.follow("base copy")

			for i := range 50 {
				_, err := m.home.Put(t.Context(), fmt.Sprintf("%skey%02d", prefix(0), i), "second")
				require.NoError(t, err)
			}
			_, err = m.home.Txn(t.Context()).Then(puts[40:]...).Commit()
			require.NoError(t, err)
			m.follow("events, and a revision in several transactions")

			deleted, err := m.home.Delete(t.Context(), prefix(0)+"key1", clientv3.WithPrefix())
			require.NoError(t, err)
			_, err = m.home.Compact(t.Context(), deleted.Header.Revision)
			require.NoError(t, err)
			m.follow("deletions, and compaction at home")

			_, err = m.target.Delete(t.Context(), "", clientv3.WithPrefix())
			require.NoError(t, err)
			m.follow("an empty target")

			_, err = m.target.Delete(t.Context(), m.mark())
			require.NoError(t, err)
			require.ErrorIs(t, m.client("").Mirror(t.Context(), compose.MirrorOptions{}), mirror.ErrNotEmpty)
		})
	}
}

// Two names of one cluster, by a wrong endpoint: its keys aren't mirrored in it, each change as another one, and nothing of the attempt is left.
func TestMirrorInItself(t *testing.T) {
	for _, kind := range []string{"stoa", "etcd"} {
		t.Run(kind, func(t *testing.T) {
			all := startEach(t, kind, kind)
			m := newMirrorTest(t, all, 0)
			m.servers[1] = m.servers[0]
			require.ErrorIs(t, m.client("").Mirror(t.Context(), compose.MirrorOptions{}), mirrorworker.ErrSame)
			left, err := m.home.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			require.NoError(t, err)
			require.Empty(t, left.Kvs)
		})
	}
}

// mirrorTest is a prefix of one cluster that is mirrored in another.
type mirrorTest struct {
	*testing.T
	prefix       string
	servers      [2][]string
	home, target *clientv3.Client
}

// newMirrorTest is the prefix of one of two clusters.
func newMirrorTest(t *testing.T, all clusters, home int) *mirrorTest {
	h, target := all[home].voters, all[1-home].voters
	return &mirrorTest{T: t, prefix: prefix(home), servers: [2][]string{urls(h), urls(target)}, home: dial(t, h...), target: dial(t, target...)}
}

func (m *mirrorTest) client(local string) *compose.Client {
	cfg := compose.Config{
		Clusters: map[string]compose.Cluster{"home": {Endpoints: m.servers[0]}, "target": {Endpoints: m.servers[1]}},
		Routes:   []compose.Route{{Prefix: m.prefix, Cluster: "home", Mirrors: []string{"target"}}},
		Local:    local,
	}
	c, err := compose.New(cfg)
	require.NoError(m, err)
	m.Cleanup(func() { c.Close() })
	return c
}

func (m *mirrorTest) mark() string { return "/stoa/mirror/mark/" + m.prefix }

// follow runs an executor until the mirror is where home is, and compares.
func (m *mirrorTest) follow(why string) {
	m.Helper()
	ctx, cancel := context.WithCancel(m.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.client("").Mirror(ctx, compose.MirrorOptions{MaxTxnOps: 32}) }()
	reader := m.client("target")
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		st, err := reader.MirrorStatus(ctx)
		if err == nil && st[0].Usable && st[0].Behind == 0 {
			break
		}
		require.Less(m, time.Since(begun), time.Minute, "%s: %+v, error %v", why, st, err)
	}
	cancel()
	require.NoError(m, <-ended, why)

	want, err := m.home.Get(m.Context(), m.prefix, clientv3.WithPrefix())
	require.NoError(m, err)
	_, err = reader.Get(m.Context(), m.prefix+"key00") // synced
	require.NoError(m, err)
	got, err := reader.Get(m.Context(), m.prefix, clientv3.WithPrefix())
	require.NoError(m, err)
	require.EqualValues(m, 1, reader.Stats().Mirrored, "%s: the mirror didn't answer: %+v", why, reader.Stats())
	require.Equal(m, want.Count, got.Count, why)
	require.Equal(m, fmt.Sprint(want.Kvs), fmt.Sprint(got.Kvs), why)
}
