package operator

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	stoa "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

func stoactl(t *testing.T, args ...string) {
	t.Helper()
	path, err := process.Stoactl()
	require.NoError(t, err)
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(t, err, "stoactl %s: %s", args, out)
}

func peer(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := process.Peer(name)
	require.NoError(t, err)
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, args, out)
}

// saveBy saves a snapshot with stoactl or etcdctl.
func saveBy(t *testing.T, tool string, s *process.Server) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "snapshot")
	args := []string{"--endpoints=" + s.ClientURL, "snapshot", "save", file}
	if tool == "stoactl" {
		stoactl(t, args...)
	} else {
		peer(t, tool, args...)
	}
	return file
}

// restoreFlags are those of a planned member, for stoactl and etcdutl.
func restoreFlags(c *process.Cluster, s *process.Server) []string {
	var all []string
	for _, m := range c.Servers {
		all = append(all, m.Name+"="+m.PeerURL)
	}
	return []string{"--name=" + s.Name, "--initial-cluster=" + strings.Join(all, ","), "--initial-advertise-peer-urls=" + s.PeerURL,
		"--initial-cluster-token=restored", "--data-dir=" + s.DataDir}
}

func restoreBy(t *testing.T, tool string, c *process.Cluster, s *process.Server, file string, more ...string) {
	t.Helper()
	args := slices.Concat([]string{"snapshot", "restore", file}, restoreFlags(c, s), more)
	if tool == "stoactl" {
		stoactl(t, args...)
	} else {
		peer(t, tool, args...)
	}
}

// restored starts a cluster from a snapshot. The servers of stoa get no --initial flags.
func restored(t *testing.T, tool string, spec process.Spec, file string, more ...string) *process.Cluster {
	t.Helper()
	c := process.NewT(t, spec)
	for i, s := range c.Servers {
		restoreBy(t, tool, c, s, file, more...)
		if c.Spec.Binary.Stoa {
			c.Servers[i] = s.Without("--initial-", "--partitions")
			t.Cleanup(func() { c.Servers[i].Kill() })
		}
	}
	require.NoError(t, c.Start(t.Context()))
	return c
}

func hashKV(t *testing.T, s *process.Server, rev int64) uint32 {
	t.Helper()
	h, err := client(t, s).HashKV(t.Context(), s.ClientURL, rev)
	require.NoError(t, err)
	return h.Hash
}

func partitions(n int) process.Spec { return process.Spec{Nodes: 1, Partitions: n} }

func etcdSpec(t *testing.T) process.Spec {
	t.Helper()
	bin, err := process.Choose("etcd")
	require.NoError(t, err)
	return process.Spec{Nodes: 1, Binary: bin}
}

// stop ends all servers of a cluster.
func stop(t *testing.T, c *process.Cluster) {
	t.Helper()
	for _, s := range c.Servers {
		_, _, err := s.Stop()
		require.NoError(t, err)
	}
}

// history writes keys into many partitions, overwrites, deletes and compacts. It returns a
// revision behind the compaction.
func history(t *testing.T, cli *clientv3.Client) (rev int64) {
	t.Helper()
	ctx := t.Context()
	for i := range 300 {
		_, err := cli.Put(ctx, fmt.Sprintf("/d%d/k%d", i%17, i%60), fmt.Sprint(i))
		require.NoError(t, err)
	}
	var ops []clientv3.Op
	for i := range 20 {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("/txn%d/k", i), "v"))
	}
	_, err := cli.Txn(ctx).Then(ops...).Commit()
	require.NoError(t, err)
	d, err := cli.Delete(ctx, "/d3/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Positive(t, d.Deleted)
	_, err = cli.Compact(ctx, d.Header.Revision/2)
	require.NoError(t, err)
	_, err = cli.Put(ctx, "/last", "v")
	require.NoError(t, err)
	return d.Header.Revision
}

const counter = `
return {
  scope = { "/counter/", "/tally/" },
  operations = { { op = "read", prefix = "/counter/" } },
  read = function(request)
    local n = tonumber(get(request.key) or 0) + 1
    put(request.key, n)
    put("/tally/last", request.key)
    return { key = request.key, value = tostring(n) }
  end,
}
`

// From stoa over etcd and back, with other numbers of partitions each time: history, leases
// and extensions are the same at each station.
func TestRoundTripOverEtcd(t *testing.T) {
	requireStoa(t)
	ctx := t.Context()
	first := process.StartT(t, partitions(4))
	cli := client(t, first.Servers[0])
	lease, err := cli.Grant(ctx, 5000)
	require.NoError(t, err)
	_, err = cli.Put(ctx, "/leased/k", "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	rev := history(t, cli)
	last, err := cli.Get(ctx, "/", clientv3.WithPrefix())
	require.NoError(t, err)
	head := last.Header.Revision
	one, two := hashKV(t, first.Servers[0], rev), hashKV(t, first.Servers[0], head)

	check := func(c *process.Cluster) *process.Server {
		t.Helper()
		s := c.Servers[0]
		require.Equal(t, one, hashKV(t, s, rev))
		require.Equal(t, two, hashKV(t, s, head))
		cli := client(t, s)
		got, err := cli.Get(ctx, "/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(last.Kvs), fmt.Sprint(got.Kvs))
		require.Equal(t, head, got.Header.Revision)
		ttl, err := cli.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		require.EqualValues(t, 5000, ttl.GrantedTTL)
		require.Positive(t, ttl.TTL)
		require.Len(t, ttl.Keys, 1)
		old, err := cli.Get(ctx, "/d3/", clientv3.WithPrefix(), clientv3.WithRev(rev-1))
		require.NoError(t, err)
		require.NotEmpty(t, old.Kvs)
		_, err = cli.Get(ctx, "/d3/", clientv3.WithPrefix(), clientv3.WithRev(2))
		require.ErrorIs(t, err, rpctypes.ErrCompacted)
		return s
	}
	file := saveBy(t, "stoactl", check(first))
	stop(t, first)
	second := restored(t, "stoactl", partitions(2), file, "--partitions=2")
	file = saveBy(t, "stoactl", check(second))
	stop(t, second)
	peer(t, "etcdutl", "snapshot", "status", file)
	etcd := restored(t, "etcdutl", etcdSpec(t), file)
	file = saveBy(t, "etcdctl", check(etcd))
	saveBy(t, "stoactl", etcd.Servers[0])
	stop(t, etcd)
	third := restored(t, "stoactl", partitions(3), file, "--partitions=3")
	s := check(third)
	cli = client(t, s)
	p, err := cli.Put(ctx, "/more", "v")
	require.NoError(t, err)
	require.Equal(t, head+1, p.Header.Revision, "revisions continue")
	_, err = cli.Revoke(ctx, lease.ID)
	require.NoError(t, err)
	gone, err := cli.Get(ctx, "/leased/k")
	require.NoError(t, err)
	require.Empty(t, gone.Kvs)
	stop(t, third)
	peer(t, "etcdutl", "defrag", "--data-dir="+s.DataDir)
	peer(t, "etcdutl", "hashkv", filepath.Join(s.DataDir, "member", "snap", "db"))
	require.NoError(t, third.Start(ctx))
	_, err = cli.Put(ctx, "/more", "v")
	require.NoError(t, err)
}

// Extensions that are registered are there after a restore, and their keys are placed for
// them, in a cluster with more partitions too.
func TestExtensionsAreRestored(t *testing.T) {
	requireStoa(t)
	ctx := t.Context()
	first := process.StartT(t, partitions(1))
	cli, err := stoa.New(stoa.Config{Endpoints: []string{first.Servers[0].ClientURL}, ClientID: "c"})
	require.NoError(t, err)
	defer cli.Close()
	_, err = cli.Put(ctx, "/em/count", counter)
	require.NoError(t, err)
	_, err = cli.Put(ctx, "/em/count/ack", "")
	require.NoError(t, err)
	for want := range 3 {
		r, err := cli.Get(ctx, "/counter/a")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(want+1), string(r.Kvs[0].Value))
	}
	file := saveBy(t, "stoactl", first.Servers[0])
	stop(t, first)
	etcd := restored(t, "etcdutl", etcdSpec(t), file)
	overEtcd := saveBy(t, "etcdctl", etcd.Servers[0])
	for _, file := range []string{file, overEtcd} {
		c := restored(t, "stoactl", partitions(4), file, "--partitions=4")
		again, err := stoa.New(stoa.Config{Endpoints: []string{c.Servers[0].ClientURL}, ClientID: "c"})
		require.NoError(t, err)
		defer again.Close()
		r, err := again.Get(ctx, "/counter/a")
		require.NoError(t, err)
		require.Equal(t, "4", string(r.Kvs[0].Value))
		session, err := again.Session(ctx) // it has the partition map
		require.NoError(t, err)
		require.NoError(t, session.Close(ctx))
		scope, ok := again.Partition("/counter/a")
		require.True(t, ok)
		tally, ok := again.Partition("/tally/last")
		require.True(t, ok)
		require.Equal(t, scope, tally, "the scope is in one partition")
	}
}

// Sessions are not in a restored cluster. Their ephemeral keys go with their leases.
func TestSessionsEndWithTheCluster(t *testing.T) {
	requireStoa(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := process.StartT(t, partitions(2))
	cli, err := stoa.New(stoa.Config{Endpoints: []string{first.Servers[0].ClientURL}})
	require.NoError(t, err)
	s, err := cli.Session(ctx, stoa.WithTTL(5*time.Second))
	require.NoError(t, err)
	_, err = s.Put(ctx, "/service/a", "here", stoa.Ephemeral())
	require.NoError(t, err)
	_, err = s.Put(ctx, "/kept", "v")
	require.NoError(t, err)
	file := saveBy(t, "stoactl", first.Servers[0])
	require.NoError(t, cli.Close())
	stop(t, first)

	second := restored(t, "stoactl", partitions(3), file, "--partitions=3")
	cli, err = stoa.New(stoa.Config{Endpoints: []string{second.Servers[0].ClientURL}})
	require.NoError(t, err)
	defer cli.Close()
	r, err := cli.Get(ctx, "/service/a")
	require.NoError(t, err)
	require.Len(t, r.Kvs, 1, "for as long as its lease")
	require.Eventually(t, func() bool {
		r, err := cli.Get(ctx, "/service/", clientv3.WithPrefix())
		return err == nil && len(r.Kvs) == 0
	}, 30*time.Second, 100*time.Millisecond)
	r, err = cli.Get(ctx, "/kept")
	require.NoError(t, err)
	require.Len(t, r.Kvs, 1)
	s, err = cli.Session(ctx)
	require.NoError(t, err)
	_, err = s.Put(ctx, "/service/a", "again", stoa.Ephemeral())
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
}

// Three members begin from one file, are written to, and survive their leader.
func TestRestoreThreeMembers(t *testing.T) {
	c := cluster(t)
	before := hashKV(t, c.Servers[0], 0)
	file := saveBy(t, "stoactl", c.Servers[1])
	put(t, c.Servers[0], "lost", 5)
	stop(t, c)
	again := process.NewT(t, process.Spec{Nodes: 3})
	for i, s := range again.Servers {
		restoreBy(t, "stoactl", again, s, file, "--partitions=3")
		again.Servers[i] = s.Without("--initial-", "--partitions", "--name")
		t.Cleanup(func() { again.Servers[i].Kill() })
	}
	one, two, three := again.Servers[0], again.Servers[1], again.Servers[2]
	require.NoError(t, one.Start())
	notReady(t, one, time.Second)
	require.NoError(t, two.Start())
	ready(t, one)
	require.Equal(t, before, hashKV(t, one, 0))
	requireKeys(t, one, "first", 20)
	requireKeys(t, one, "lost", 0)
	put(t, two, "second", 50)
	require.NoError(t, three.Start()) // late
	ready(t, three)
	requireKeys(t, three, "second", 50)
	for _, s := range again.Servers {
		require.NotZero(t, memberID(t, one, s.Name), "the name is that of the restore")
	}
	lead := 0
	for i, s := range again.Servers {
		st, err := client(t, s).Status(t.Context(), s.ClientURL)
		require.NoError(t, err)
		if st.Leader == st.Header.MemberId {
			lead = i
		}
	}
	require.NoError(t, again.Servers[lead].Kill())
	put(t, again.Servers[(lead+1)%3], "third", 20)
	require.NoError(t, again.Restart(t.Context(), again.Servers[lead]))
	rev := revision(t, again.Servers[lead])
	for _, s := range again.Servers {
		requireKeys(t, s, "third", 20)
		require.Equal(t, hashKV(t, one, rev), hashKV(t, s, rev))
	}
	for _, s := range again.Servers {
		require.NotContains(t, said(s, 0), "are ignored")
	}
	// With the flags that it was restored with, as etcd's operators start it.
	require.NoError(t, three.Kill())
	three = three.With(restoreFlags(again, three)[:4]...)
	t.Cleanup(func() { three.Kill() })
	require.NoError(t, three.Start())
	ready(t, three)
	require.NotContains(t, said(three, 0), "are ignored")
}

func revision(t *testing.T, s *process.Server) int64 {
	t.Helper()
	r, err := client(t, s).Get(t.Context(), "/none")
	require.NoError(t, err)
	return r.Header.Revision
}

// What begins with another state takes no part: an empty directory, another file, another
// number of partitions.
func TestMemberThatWasNotRestoredAlike(t *testing.T) {
	c := cluster(t)
	file := saveBy(t, "stoactl", c.Servers[0])
	put(t, c.Servers[0], "later", 1)
	other := saveBy(t, "stoactl", c.Servers[0])
	stop(t, c)
	again := process.NewT(t, process.Spec{Nodes: 3})
	one, two, three := again.Servers[0], again.Servers[1], again.Servers[2]
	token := "--initial-cluster-token=restored"
	start := func(s *process.Server) *process.Server {
		s = s.With(token)
		t.Cleanup(func() { s.Kill() })
		require.NoError(t, s.Start())
		return s
	}
	restoreBy(t, "stoactl", again, one, file, "--partitions=2")
	restoreBy(t, "stoactl", again, two, file, "--partitions=2")
	a, c3 := start(one), start(three) // it is empty
	awaitLog(t, a, 0, "one was restored from a snapshot")
	awaitLog(t, c3, 0, "one was restored from a snapshot")
	notReady(t, a, 100*time.Millisecond)
	notReady(t, c3, 100*time.Millisecond)
	b := start(two)
	ready(t, a)
	ready(t, b)
	ends(t, c3, 0, "is of another cluster", "one was restored from a snapshot", "from the same file")
	for _, how := range [][]string{{other, "--partitions=2"}, {file, "--partitions=3"}, {file, "--partitions=2", "--bump-revision=10", "--mark-compacted"}} {
		require.NoError(t, os.RemoveAll(three.DataDir))
		restoreBy(t, "stoactl", again, three, how[0], how[1:]...)
		refuses(t, three.With(token), "is of another cluster", "one was restored from a snapshot")
	}
	require.NoError(t, os.RemoveAll(three.DataDir))
	restoreBy(t, "stoactl", again, three, file, "--partitions=2")
	ready(t, start(three))
	requireKeys(t, three, "first", 20)
}

// The state that was restored must be there, and a restore must have come to its end.
func TestHalfRestoredDirectory(t *testing.T) {
	c := cluster(t)
	file := saveBy(t, "stoactl", c.Servers[0])
	again := process.NewT(t, partitions(2))
	s := again.Servers[0]
	restoreBy(t, "stoactl", again, s, file)
	require.NoError(t, os.Rename(filepath.Join(s.DataDir, "member"), filepath.Join(s.DataDir, "restoring")))
	refuses(t, s, s.DataDir, "was interrupted", "remove the directory")
	require.NoError(t, os.Rename(filepath.Join(s.DataDir, "restoring"), filepath.Join(s.DataDir, "member")))
	db := filepath.Join(s.DataDir, "member", "snap", "db")
	require.NoError(t, os.Rename(db, db+".away"))
	refuses(t, s, db, "remove the data directory")
	require.NoError(t, os.Rename(db+".away", db))
	require.NoError(t, s.Start())
	ready(t, s)
	requireKeys(t, s, "first", 20)
}

// After a bumped restore no revision is given out twice, and watches from before learn that
// they have missed something, whichever tool has restored.
func TestBumpedRevision(t *testing.T) {
	requireStoa(t)
	ctx := t.Context()
	first := process.StartT(t, partitions(2))
	put(t, first.Servers[0], "first", 20)
	file := saveBy(t, "stoactl", first.Servers[0])
	stop(t, first)
	const bump = 1_000_000
	hashes := map[uint32]bool{}
	for _, how := range []struct {
		tool string
		spec process.Spec
	}{{"stoactl", partitions(2)}, {"etcdutl", partitions(3)}, {"etcdutl", etcdSpec(t)}} {
		c := restored(t, how.tool, how.spec, file, fmt.Sprint("--bump-revision=", bump), "--mark-compacted")
		cli := client(t, c.Servers[0])
		r, err := cli.Get(ctx, "/first/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, r.Kvs, 20)
		require.EqualValues(t, bump+21, r.Header.Revision, how.tool)
		w := <-cli.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(25))
		require.ErrorIs(t, w.Err(), rpctypes.ErrCompacted)
		require.EqualValues(t, bump+21, w.CompactRevision)
		hashes[hashKV(t, c.Servers[0], 0)] = true
		p, err := cli.Put(ctx, "/next", "v")
		require.NoError(t, err)
		require.EqualValues(t, bump+22, p.Header.Revision)
		stop(t, c)
		require.NoError(t, c.Start(ctx))
		require.EqualValues(t, bump+22, revision(t, c.Servers[0]))
		stop(t, c)
	}
	require.Len(t, hashes, 1)
}

// Members whose directories the real etcdutl has restored are started as stoa's.
func TestRestoredByEtcdutl(t *testing.T) {
	requireStoa(t)
	of := process.StartT(t, etcdSpec(t))
	rev := history(t, client(t, of.Servers[0]))
	want := hashKV(t, of.Servers[0], rev)
	file := saveBy(t, "etcdctl", of.Servers[0])
	stop(t, of)
	c := restored(t, "etcdutl", process.Spec{Nodes: 3}, file)
	list, err := client(t, c.Servers[0]).MemberList(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Members, 3)
	for _, s := range c.Servers {
		require.Equal(t, want, hashKV(t, s, rev))
	}
	put(t, c.Servers[0], "more", 10)
	stop(t, c)
	require.NoError(t, c.Start(t.Context()))
	requireKeys(t, c.Servers[2], "more", 10)
}

// A member that is added to a restored cluster needs no snapshot: it gets the state from the
// others.
func TestMemberAddedToARestoredCluster(t *testing.T) {
	c := cluster(t)
	file := saveBy(t, "stoactl", c.Servers[0])
	stop(t, c)
	again := restored(t, "stoactl", partitions(3), file, "--partitions=3")
	one := again.Servers[0]
	two, err := again.Joining("s2", process.Place{Host: "127.0.0.1"})
	require.NoError(t, err)
	t.Cleanup(func() { two.Kill() })
	_, err = client(t, one).MemberAdd(t.Context(), []string{two.PeerURL})
	require.NoError(t, err)
	require.NoError(t, two.Start())
	ready(t, two)
	put(t, two, "more", 10)
	requireKeys(t, two, "first", 20)
	rev := revision(t, two)
	require.Equal(t, hashKV(t, one, rev), hashKV(t, two, rev))
}
