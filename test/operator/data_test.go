package operator

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// A member whose data is gone is refused, as in etcd, and the others go on.
func TestEmptyDirectoryOfAMember(t *testing.T) {
	c := cluster(t)
	s := c.Servers[2]
	require.NoError(t, s.Kill())
	require.NoError(t, os.RemoveAll(s.DataDir))
	refuses(t, s, "has already been bootstrapped", "has met s3", s.DataDir)
	refuses(t, s, "has already been bootstrapped") // and again
	put(t, c.Servers[0], "second", 20)
	requireKeys(t, c.Servers[1], "first", 20)
}

// Where the member was restarted without --initial-cluster, an empty directory, of a disk that isn't mounted, say, is that of a new cluster, but
// for a member that is to be of an existing one.
func TestEmptyDirectoryOfAnExistingMember(t *testing.T) {
	c := cluster(t)
	s := restartFlags(c, c.Servers[2]).With("--initial-cluster-state=existing")
	t.Cleanup(func() { s.Kill() })
	require.NoError(t, c.Servers[2].Kill())
	require.NoError(t, s.Start())
	ready(t, s)
	require.NoError(t, s.Kill())
	require.NoError(t, os.Rename(s.DataDir, s.DataDir+".away"))
	refuses(t, s, "--initial-cluster has no other member", "--initial-cluster-state is existing")
}

// It must not vote either while no other member answers, where etcd lets it.
func TestEmptyDirectoryBeforeTheOthersAreUp(t *testing.T) {
	c := cluster(t)
	for _, s := range c.Servers {
		require.NoError(t, s.Kill())
	}
	s := c.Servers[2]
	require.NoError(t, os.RemoveAll(s.DataDir))
	from := logged(s)
	require.NoError(t, s.Start())
	awaitLog(t, s, from, "waiting for other members")
	require.NoError(t, c.Servers[0].Start())
	ends(t, s, from, "has already been bootstrapped", "s1")
	require.NoError(t, c.Servers[1].Start())
	ready(t, c.Servers[0])
	requireKeys(t, c.Servers[0], "first", 20)
}

func TestDirectoryOfAnotherMember(t *testing.T) {
	c := cluster(t)
	one, two := c.Servers[0], c.Servers[1]
	require.NoError(t, one.Kill())
	require.NoError(t, two.Kill())
	t.Run("given by mistake", func(t *testing.T) {
		refuses(t, one.With("--data-dir="+two.DataDir), two.DataDir, "member s2", "--name=s1")
	})
	t.Run("copied", func(t *testing.T) {
		require.NoError(t, os.Rename(one.DataDir, one.DataDir+".away"))
		copyDir(t, two.DataDir, one.DataDir)
		refuses(t, one, one.DataDir, "member s2", "--name=s1")
		require.NoError(t, os.RemoveAll(one.DataDir))
		require.NoError(t, os.Rename(one.DataDir+".away", one.DataDir))
	})
	t.Run("its state file alone", func(t *testing.T) {
		db := filepath.Join(one.DataDir, "member", "snap", "db")
		require.NoError(t, os.Rename(db, db+".away"))
		refuses(t, one, db, "missing")
		require.NoError(t, os.Rename(db+".away", db))
	})
	t.Run("its log alone", func(t *testing.T) {
		wal := filepath.Join(one.DataDir, "member", "wal")
		require.NoError(t, os.Rename(wal, wal+".away"))
		refuses(t, one, wal, "missing", "--wal-dir", "the member must not start")
		require.NoError(t, os.RemoveAll(wal))
		copyDir(t, filepath.Join(two.DataDir, "member", "wal"), wal)
		refuses(t, one, wal, "belongs to another server")
		require.NoError(t, os.RemoveAll(wal))
		require.NoError(t, os.Rename(wal+".away", wal))
	})
	require.NoError(t, c.Start(t.Context()))
	requireKeys(t, one, "first", 20)
}

// The others would be told that they were removed, and end, though they are the majority.
func TestForcedWhileOthersRun(t *testing.T) {
	c := cluster(t)
	s := c.Servers[2]
	require.NoError(t, s.Kill())
	put(t, c.Servers[0], "second", 5)
	refuses(t, s.With("--force-new-cluster"), "--force-new-cluster", "other members run", "s1 ("+c.Servers[0].PeerURL+")", "s2 ("+c.Servers[1].PeerURL+")")
	put(t, c.Servers[1], "third", 5)
	require.NoError(t, c.Restart(t.Context(), s)) // nothing was changed
	requireKeys(t, s, "third", 5)
	require.Len(t, members(t, s), 3)
}

func TestTwoProcessesOnOneDirectory(t *testing.T) {
	c := cluster(t)
	plan := process.NewT(t, process.Spec{}).Servers[0]
	refuses(t, c.Servers[0].With("--listen-client-urls="+plan.ClientURL, "--listen-peer-urls="+plan.PeerURL), c.Servers[0].DataDir, "in use")
	refuses(t, c.Servers[0].With("--data-dir="+c.Servers[1].DataDir), "another process listens", "--listen-peer-urls")
	put(t, c.Servers[0], "second", 5)
}

// A copy of a directory, beside the member that it was copied from.
func TestTwoServersOnCopies(t *testing.T) {
	c := cluster(t)
	s := c.Servers[2]
	require.NoError(t, s.Pause())
	copyDir(t, s.DataDir, s.DataDir+".copy")
	require.NoError(t, s.Resume())
	plan := process.NewT(t, process.Spec{}).Servers[0]
	refuses(t, s.With("--data-dir="+s.DataDir+".copy", "--listen-client-urls="+plan.ClientURL, "--listen-peer-urls="+plan.PeerURL),
		"two servers have the id", "stop one of the two")
	put(t, s, "second", 5)
	require.NoError(t, s.Kill()) // nor has the copy done harm
	require.NoError(t, c.Restart(t.Context(), s))
	requireKeys(t, s, "second", 5)
}

// A restored disk image has lost what the member has said since.
func TestOlderDirectoryPutBack(t *testing.T) {
	back := func(t *testing.T, s *process.Server, image string) {
		require.NoError(t, s.Kill())
		require.NoError(t, os.RemoveAll(s.DataDir))
		require.NoError(t, os.Rename(image, s.DataDir))
	}
	t.Run("of an earlier start", func(t *testing.T) {
		c := cluster(t)
		s := c.Servers[2]
		require.NoError(t, s.Kill())
		copyDir(t, s.DataDir, s.DataDir+".image")
		require.NoError(t, c.Restart(t.Context(), s))
		put(t, c.Servers[0], "second", 20)
		back(t, s, s.DataDir+".image")
		refuses(t, s, s.DataDir, "older copy")
		put(t, c.Servers[0], "third", 5)
	})
	t.Run("of the same start", func(t *testing.T) {
		c := cluster(t)
		at := follower(t, c)
		s, other := c.Servers[at], c.Servers[(at+1)%3]
		require.NoError(t, s.Pause())
		copyDir(t, s.DataDir, s.DataDir+".image")
		require.NoError(t, s.Resume())
		put(t, other, "second", 200)
		back(t, s, s.DataDir+".image")
		refuses(t, s, s.DataDir, "lost entries that this member had acknowledged")
		put(t, other, "third", 5)
	})
}

// follower is a server that does not lead.
func follower(t *testing.T, c *process.Cluster) int {
	t.Helper()
	for i, s := range c.Servers {
		st, err := client(t, s).Status(t.Context(), s.ClientURL)
		require.NoError(t, err)
		if st.Leader != st.Header.MemberId {
			return i
		}
	}
	require.Fail(t, "no follower")
	return 0
}

func TestDirectoryOfSomethingElse(t *testing.T) {
	requireStoa(t)
	bin, err := process.Choose("etcd")
	require.NoError(t, err)
	of := process.StartT(t, process.Spec{Binary: bin})
	_, _, err = of.Servers[0].Stop()
	require.NoError(t, err)
	c := process.NewT(t, process.Spec{Args: []string{"--data-dir=" + of.Servers[0].DataDir}})
	refuses(t, c.Servers[0], of.Servers[0].DataDir, "is of etcd", "snapshot save", "snapshot restore")
}
