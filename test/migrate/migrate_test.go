package migrate

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/migrate"
	"github.com/stoa-kv/stoa/test/process"
)

const patience = 2 * time.Minute

// pair is a source and a target, empty.
type pair struct {
	from, to *process.Server
	source   *clientv3.Client
	target   *clientv3.Client
}

func server(t *testing.T, binary string, partitions int, args ...string) (*process.Server, *clientv3.Client) {
	t.Helper()
	bin, err := process.Choose(binary)
	require.NoError(t, err)
	s := process.StartT(t, process.Spec{Binary: bin, Partitions: partitions, Args: args}).Servers[0]
	c, err := Connect(s)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	if bin.Stoa {
		awaitVersion(t, s)
	}
	return s, c
}

// awaitVersion waits until a new cluster has the version of its members: only then are leases granted
// with less than their time.
func awaitVersion(t *testing.T, s *process.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		release, cluster, err := s.Versions()
		return err == nil && release != "" && release == cluster
	}, patience, 50*time.Millisecond)
}

func between(t *testing.T, from, to string, partitions int) *pair {
	t.Helper()
	p := &pair{}
	p.from, p.source = server(t, from, partitions)
	p.to, p.target = server(t, to, partitions)
	return p
}

func (p *pair) start(t *testing.T, args ...string) *Tool {
	t.Helper()
	tool, err := Start(p.from, p.to, args...)
	require.NoError(t, err)
	t.Cleanup(tool.Kill)
	return tool
}

// requireEqual waits for leases that have ended in the source behind the migration: they end in the target, too, but by its own time.
func (p *pair) requireEqual(t *testing.T) {
	t.Helper()
	onlyInTarget := func(difference string) bool { return strings.HasSuffix(difference, "only in the target") }
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		source, err := Read(t.Context(), p.source)
		require.NoError(t, err)
		target, err := Read(t.Context(), p.target)
		require.NoError(t, err)
		all := Differences(source, target)
		if !slices.ContainsFunc(all, onlyInTarget) || time.Now().After(end) {
			require.Empty(t, all)
			return
		}
	}
}

// requireRemaining wants leases of the target not to live longer than the source's.
func (p *pair) requireRemaining(t *testing.T, stoa bool) {
	t.Helper()
	source, err := Read(t.Context(), p.source)
	require.NoError(t, err)
	target, err := Read(t.Context(), p.target)
	require.NoError(t, err)
	const slack = 3 // seconds between the reads of the source by the migrator and here
	for id, l := range source.Leases {
		require.Greater(t, target.Leases[id].Remaining, l.Remaining-slack)
		if stoa {
			require.LessOrEqual(t, target.Leases[id].Remaining, l.Remaining+slack)
		}
	}
}

func says(t *testing.T, tool *Tool, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(tool.Said(), text) }, patience, 20*time.Millisecond, "%q, but: %s", text, tool.Said())
}

func ends(t *testing.T, tool *Tool, code int) {
	t.Helper()
	got, err := tool.Wait(patience)
	require.NoError(t, err)
	require.Equal(t, code, got, tool.Said())
}

var small = Shape{Keys: 3000, Leases: 120, Value: 100, TTL: 300}

// A source that is written and compacted, and migrators that are killed at random points:
// at the cut-over both sides are equal.
func TestMigrate(t *testing.T) {
	for _, way := range []struct {
		from, to   string
		partitions int
	}{{"etcd", "stoa", 3}, {"stoa", "etcd", 3}} {
		t.Run(way.from+" to "+way.to, func(t *testing.T) {
			t.Parallel()
			p := between(t, way.from, way.to, way.partitions)
			require.NoError(t, Fill(t.Context(), p.source, small))
			w := StartWriter(p.source, small, 200)
			compacted := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { compacted <- Compactor(ctx, p.source, 700*time.Millisecond) }()
			for range 6 {
				tool := p.start(t)
				time.Sleep(time.Duration(50+rand.IntN(900)) * time.Millisecond) // not waited for: the point is any
				tool.Kill()
			}
			following := p.start(t)
			says(t, following, "Ready to cut over")
			over := p.start(t, "--cut-over", "--quiet-time=1s")
			ends(t, following, 1)
			require.Contains(t, following.Said(), "another process has taken over")
			says(t, over, "Going on at revision")
			require.NoError(t, w.Stop())
			require.Positive(t, w.Written.Load())
			ends(t, over, 0)
			cancel()
			require.NoError(t, <-compacted)
			require.Contains(t, over.Said(), "Migrated")
			p.requireEqual(t)
			p.requireRemaining(t, way.to == "stoa")
			mark, err := p.target.Get(t.Context(), migrate.MarkKey)
			require.NoError(t, err)
			require.Empty(t, mark.Kvs)
		})
	}
}

// Killed while leases are moved, with leases of a few seconds: what the target has lost by
// then is copied again.
func TestKilledDuringCutOver(t *testing.T) {
	t.Parallel()
	p := between(t, "etcd", "stoa", 2)
	require.NoError(t, Fill(t.Context(), p.source, Shape{Keys: 500, Leases: 400, Value: 10, TTL: 600}))
	for i := range 8 {
		tool := p.start(t, "--cut-over", "--quiet-time=200ms")
		says(t, tool, "cutting over")
		time.Sleep(time.Duration(rand.IntN(10*(i+1))) * time.Millisecond) // any point
		tool.Kill()
		if r, err := p.target.Get(t.Context(), migrate.MarkKey); err == nil && len(r.Kvs) == 0 {
			break // it was finished
		}
		list, err := p.target.Leases(t.Context())
		require.NoError(t, err)
		for j, l := range list.Leases {
			if j%3 == 0 { // it ends
				_, err := p.target.Revoke(t.Context(), l.ID)
				require.NoError(t, err)
			}
		}
	}
	tool := p.start(t, "--cut-over", "--quiet-time=200ms")
	code, err := tool.Wait(patience)
	require.NoError(t, err)
	if code != 0 {
		require.Contains(t, tool.Said(), "no mark of a migration")
	}
	p.requireEqual(t)
}

// With --cut-over it waits as long as the source is written.
func TestCutOverWaitsForQuiet(t *testing.T) {
	t.Parallel()
	p := between(t, "etcd", "stoa", 2)
	w := StartWriter(p.source, Shape{Keys: 10}, 50)
	tool := p.start(t, "--cut-over", "--quiet-time=2s")
	says(t, tool, "Equal at revision")
	require.Never(t, func() bool { return strings.Contains(tool.Said(), "cutting over") }, 3*time.Second, 50*time.Millisecond)
	require.NoError(t, w.Stop())
	ends(t, tool, 0)
	p.requireEqual(t)
}

// A target that was restored from a snapshot keeps the history; only what differs is copied.
func TestRestoredTarget(t *testing.T) {
	t.Parallel()
	p := &pair{}
	p.from, p.source = server(t, "etcd", 0)
	require.NoError(t, Fill(t.Context(), p.source, Shape{Keys: 200, Leases: 20, Value: 10, TTL: 300}))
	file := t.TempDir() + "/snapshot"
	run(t, "--endpoints="+p.from.ClientURL, "snapshot", "save", file)
	before, err := p.source.Get(t.Context(), key(5))
	require.NoError(t, err)
	for i := range 30 {
		_, err := p.source.Put(t.Context(), key(100+i), "changed")
		require.NoError(t, err)
		_, err = p.source.Delete(t.Context(), key(150+i))
		require.NoError(t, err)
	}
	list, err := p.source.Leases(t.Context())
	require.NoError(t, err)
	for _, l := range list.Leases[:5] {
		_, err := p.source.Revoke(t.Context(), l.ID)
		require.NoError(t, err)
	}

	bin, err := process.Choose("stoa")
	require.NoError(t, err)
	c := process.NewT(t, process.Spec{Binary: bin})
	p.to = c.Servers[0]
	run(t, "snapshot", "restore", file, "--data-dir="+p.to.DataDir, "--name=s1", "--partitions=2",
		"--initial-cluster=s1="+p.to.PeerURL, "--initial-advertise-peer-urls="+p.to.PeerURL, "--initial-cluster-token=other")
	require.NoError(t, c.Start(t.Context()))
	p.target, err = Connect(p.to)
	require.NoError(t, err)
	t.Cleanup(func() { p.target.Close() })

	refused := p.start(t, "--cut-over")
	ends(t, refused, 1)
	require.Contains(t, refused.Said(), "--overwrite")
	ends(t, p.start(t, "--cut-over", "--quiet-time=200ms", "--overwrite"), 0)
	p.requireEqual(t)
	after, err := p.target.Get(t.Context(), key(5))
	require.NoError(t, err)
	require.Equal(t, before.Kvs[0].ModRevision, after.Kvs[0].ModRevision)
}

func run(t *testing.T, args ...string) {
	t.Helper()
	path, err := process.Stoactl()
	require.NoError(t, err)
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", args, out)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	p := between(t, "stoa", "stoa", 1)
	t.Run("one cluster", func(t *testing.T) {
		same := &pair{from: p.from, to: p.from}
		tool := same.start(t)
		ends(t, tool, 1)
		require.Contains(t, tool.Said(), "the same cluster")
	})
	t.Run("a target with keys", func(t *testing.T) {
		_, err := p.target.Put(t.Context(), "/mine", "v")
		require.NoError(t, err)
		tool := p.start(t)
		ends(t, tool, 1)
		require.Contains(t, tool.Said(), `"/mine" is the first`)
		_, err = p.target.Delete(t.Context(), "/mine")
		require.NoError(t, err)
	})
	t.Run("a source that is a target", func(t *testing.T) {
		_, err := p.source.Put(t.Context(), migrate.MarkKey, "{}")
		require.NoError(t, err)
		tool := p.start(t)
		ends(t, tool, 1)
		require.Contains(t, tool.Said(), migrate.MarkKey)
		_, err = p.source.Delete(t.Context(), migrate.MarkKey)
		require.NoError(t, err)
	})
	t.Run("extensions into stoa", func(t *testing.T) {
		_, err := p.source.Put(t.Context(), "/em/other/thing", "v")
		if err != nil {
			t.Skip(err)
		}
		tool := p.start(t)
		ends(t, tool, 1)
		require.Contains(t, tool.Said(), "/em/")
	})
	t.Run("nothing there", func(t *testing.T) {
		tool, err := Start(p.from, &process.Server{ClientURL: "http://127.0.0.1:1"})
		require.NoError(t, err)
		ends(t, tool, 2)
		require.Contains(t, tool.Said(), "--to: no answer from http://127.0.0.1:1")
	})
}

// Ctrl-C ends it with etcdctl's status, and it can go on.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	p := between(t, "etcd", "stoa", 2)
	require.NoError(t, Fill(t.Context(), p.source, Shape{Keys: 10, Value: 10}))
	tool := p.start(t)
	says(t, tool, "Ready")
	require.NoError(t, tool.Interrupt())
	ends(t, tool, 5)
	require.Contains(t, tool.Said(), "run it again")
	ends(t, p.start(t, "--cut-over", "--quiet-time=200ms"), 0)
	p.requireEqual(t)
	again := p.start(t, "--cut-over")
	ends(t, again, 1)
	require.Contains(t, again.Said(), "one that has cut over is finished")
}

// The keys of a session move with its lease, though lists of leases don't have it: otherwise
// they would stay in the target for good.
func TestKeysOfSessions(t *testing.T) {
	t.Parallel()
	p := between(t, "stoa", "stoa", 2)
	c, err := client.New(client.Config{Endpoints: []string{p.from.ClientURL}})
	require.NoError(t, err)
	defer c.Close()
	s, err := c.Session(t.Context(), client.WithTTL(10*time.Minute))
	require.NoError(t, err)
	_, err = s.Put(t.Context(), "ephemeral", "v", client.Ephemeral())
	require.NoError(t, err)

	over := p.start(t, "--cut-over", "--quiet-time=1s")
	ends(t, over, 0)
	moved, err := p.target.Get(t.Context(), "ephemeral")
	require.NoError(t, err)
	require.Len(t, moved.Kvs, 1)
	require.NotZero(t, moved.Kvs[0].Lease)
	_, err = p.target.Revoke(t.Context(), clientv3.LeaseID(moved.Kvs[0].Lease))
	require.NoError(t, err)
	moved, err = p.target.Get(t.Context(), "ephemeral")
	require.NoError(t, err)
	require.Empty(t, moved.Kvs)
}
