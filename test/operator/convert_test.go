package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// asStoa are servers of stoa on the directories, and at the addresses, of a stopped etcd's.
func asStoa(t *testing.T, of *process.Cluster, args ...string) *process.Cluster {
	t.Helper()
	requireStoa(t)
	c := process.NewT(t, process.Spec{Nodes: len(of.Servers), Partitions: 3})
	for i, s := range c.Servers {
		flags := append([]string{"--name=" + of.Servers[i].Name, "--data-dir=" + of.Servers[i].DataDir, "--listen-peer-urls=" + of.Servers[i].PeerURL}, args...)
		c.Servers[i] = s.Without("--name", "--data-dir", "--listen-peer-urls", "--initial-").With(flags...)
		t.Cleanup(func() { c.Servers[i].Kill() })
	}
	return c
}

// someHistory is some of everything that a data directory has.
func someHistory(t *testing.T, s *process.Server) {
	t.Helper()
	cli := client(t, s)
	put(t, s, "first", 300)
	l, err := cli.Grant(t.Context(), 600)
	require.NoError(t, err)
	_, err = cli.Put(t.Context(), "/leased", "v", clientv3.WithLease(l.ID))
	require.NoError(t, err)
	_, err = cli.Txn(t.Context()).Then(clientv3.OpPut("/txn/1", "a"), clientv3.OpPut("/txn/2", "b"), clientv3.OpDelete("/first/7/k")).Commit()
	require.NoError(t, err)
	_, err = cli.Compact(t.Context(), 150, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	put(t, s, "second", 50)
}

// A directory of etcd's that was stopped gracefully goes on as stoa's, with its keys, history
// and leases.
func TestConvertedDirectory(t *testing.T) {
	etcd := process.StartT(t, etcdSpec(t))
	someHistory(t, etcd.Servers[0])
	hash := hashKV(t, etcd.Servers[0], 0)
	stop(t, etcd)

	refuses(t, asStoa(t, etcd).Servers[0], "is of etcd", "--convert-etcd-data")
	c := asStoa(t, etcd, "--convert-etcd-data")
	s := c.Servers[0]
	require.NoError(t, s.Start())
	ready(t, s)
	require.Equal(t, hash, hashKV(t, s, 0))
	leases, err := client(t, s).Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1)
	put(t, s, "third", 10)
	dir := etcd.Servers[0].DataDir
	require.DirExists(t, filepath.Join(dir, "member.etcd", "wal"))

	// The flag stays, and the files that were moved aside are etcd's as before.
	_, _, err = s.Stop()
	require.NoError(t, err)
	require.NoError(t, s.Start())
	ready(t, s)
	requireKeys(t, s, "third", 10)
	_, _, err = s.Stop()
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "member")))
	require.NoError(t, os.Rename(filepath.Join(dir, "member.etcd"), filepath.Join(dir, "member")))
	require.NoError(t, etcd.Servers[0].Start())
	ready(t, etcd.Servers[0])
	require.Equal(t, hash, hashKV(t, etcd.Servers[0], 0))
}

// What etcd has acknowledged is in its log only, for a while: such a directory is refused
// until etcd has run on it again.
func TestConvertAfterKill(t *testing.T) {
	etcd := process.StartT(t, etcdSpec(t))
	one := etcd.Servers[0]
	someHistory(t, one)
	put(t, one, "late", 20)
	require.NoError(t, one.Kill())
	refuses(t, asStoa(t, etcd, "--convert-etcd-data").Servers[0], "etcd's log ends at index", "start etcd on it again")
	require.NoDirExists(t, filepath.Join(one.DataDir, "member.etcd"))

	require.NoError(t, one.Start())
	ready(t, one)
	hash := hashKV(t, one, 0)
	stop(t, etcd)
	s := asStoa(t, etcd, "--convert-etcd-data").Servers[0]
	require.NoError(t, s.Start())
	ready(t, s)
	requireKeys(t, s, "late", 20)
	require.Equal(t, hash, hashKV(t, s, 0))
}

// The members of a cluster are converted alike, each on its own directory. One that has
// stopped with another state isn't let in.
func TestConvertedCluster(t *testing.T) {
	spec := etcdSpec(t)
	spec.Nodes = 3
	t.Run("alike", func(t *testing.T) {
		etcd := process.StartT(t, spec)
		someHistory(t, etcd.Servers[0])
		hash := settled(t, etcd)
		stop(t, etcd)
		c := asStoa(t, etcd, "--convert-etcd-data")
		for _, s := range c.Servers {
			require.NoError(t, s.Start())
		}
		for _, s := range c.Servers {
			ready(t, s)
			require.Equal(t, hash, hashKV(t, s, 0))
		}
		put(t, c.Servers[1], "third", 10)
		requireKeys(t, c.Servers[2], "third", 10)
	})
	t.Run("one was down", func(t *testing.T) {
		etcd := process.StartT(t, spec)
		put(t, etcd.Servers[0], "first", 20)
		settled(t, etcd)
		_, _, err := etcd.Servers[2].Stop()
		require.NoError(t, err)
		put(t, etcd.Servers[0], "second", 20)
		stop(t, &process.Cluster{Servers: etcd.Servers[:2]})
		c := asStoa(t, etcd, "--convert-etcd-data")
		for _, s := range c.Servers {
			require.NoError(t, s.Start())
		}
		for _, s := range c.Servers[:2] {
			ready(t, s)
			requireKeys(t, s, "second", 20)
		}
		ends(t, c.Servers[2], 0, "differently")
	})
}

// settled waits until all members have the same hash, and returns it.
func settled(t *testing.T, c *process.Cluster) (hash uint32) {
	t.Helper()
	require.Eventually(t, func() bool {
		seen := map[string]bool{}
		for _, s := range c.Servers {
			r, err := client(t, s).HashKV(t.Context(), s.ClientURL, 0)
			if err != nil {
				return false
			}
			hash = r.Hash
			seen[fmt.Sprint(r.Hash, r.Header.Revision)] = true
		}
		return len(seen) == 1
	}, 30*time.Second, 100*time.Millisecond)
	return hash
}
