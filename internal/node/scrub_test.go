package node

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/version"
)

// A bit that changes in the memory of a server without others ends it within a pass, and it goes on
// from file and log with what was written.
func TestAChangedBitInMemoryEndsAServerAlone(t *testing.T) {
	failed := make(chan error, 1)
	c := newCluster(t, 1, 2, func(c *Config) {
		c.ScrubPass = 10 * time.Millisecond
		c.Fatal = func(err error) { failed <- err }
	})
	c.ready()
	c.put(0, "/a/key", "value")
	require.NoError(t, c.nodes[0].flushNow())
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, failed)
	flip(c.value(0, "/a/key"))
	select {
	case err := <-failed:
		require.ErrorIs(t, err, backend.ErrDiffers)
		require.ErrorContains(t, err, `"/a/key"`)
	case <-time.After(10 * time.Second):
		t.Fatal("not found")
	}
	c.stop(0)
	c.start(0)
	c.ready()
	require.Equal(t, "value", string(c.get(0, "/a/key", "").Kvs[0].Value))
}

// A bit that changes in the memory or in the file of one of three, follower or leader, fences it within a
// pass. It takes in another's state, and serves again; the others go on.
func TestAChangedBitFencesOneOfThree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, func(c *Config) { c.ScrubPass = 10 * time.Millisecond })
	c.ready()
	require.Eventually(t, func() bool { v, _ := c.nodes[0].ClusterVersion(); return v == version.Newest }, 20*time.Second, 10*time.Millisecond)
	const key, value = "/a/key", "a value that is found in a file"
	c.put(0, key, value)
	for _, damage := range []func(at int){
		func(at int) { flip(c.value(at, key)) },
		func(at int) {
			n := c.nodes[at]
			n.rebuild.Lock() // nothing is flushed meanwhile: what was a value may be another page's header then
			defer n.rebuild.Unlock()
			flipInFile(t, n.dbPath(), value)
		},
	} {
		for behind := range 2 { // the leader, who is next to it
			at := c.leading()
			at = (at + behind) % 3
			n := c.nodes[at]
			require.Eventually(t, func() bool { return string(c.value(at, key)) == value }, 20*time.Second, 10*time.Millisecond)
			require.NoError(t, n.flushNow())
			fences, before := n.fence.Times(), n.installed.Load()

			damage(at)
			require.Eventually(t, func() bool { return n.fence.Times() > fences }, 20*time.Second, time.Millisecond, "not found")
			require.Eventually(t, func() bool { return !n.Fenced() }, 30*time.Second, 10*time.Millisecond, "it doesn't heal")
			require.Greater(t, n.installed.Load(), before, "it heals by another's state")
			require.Equal(t, value, string(c.value(at, key)))
			require.Eventually(t, func() bool { return !noted(t, n) }, 20*time.Second, time.Millisecond)
			require.Eventually(t, func() bool {
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: []byte("/a/other"), Value: []byte("value")})
				return err == nil
			}, 20*time.Second, 10*time.Millisecond)
			alarm := &pb.AlarmMember{MemberID: c.configs[at].ID, Alarm: pb.AlarmType_CORRUPT}
			require.Eventually(t, func() bool { return len(missingFrom(n.ActiveAlarms(), []*pb.AlarmMember{alarm})) == 0 }, 20*time.Second, 10*time.Millisecond)
		}
	}
}

// Damage that is found in a state when another server's has just taken its place says nothing of that one.
func TestDamageOfAReplacedStateFencesNothing(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 2)
	s.agreed(version.Newest)
	n := s.nodes[s.follower]
	old := n.core.Load()
	s.leave()
	s.put(s.leader, "/d0/k", "second")
	s.install(s.cut())
	require.True(t, n.isolate(old, backend.ErrDiffers))
	require.False(t, n.Fenced())
}

// value is what a member has in its memory for a key.
func (c *cluster) value(i int, key string) []byte {
	core := c.nodes[i].core.Load()
	s := core.stores[core.machine.Placement().Partition([]byte(key))]
	s.RLock()
	defer s.RUnlock()
	return s.Get([]byte(key)).Value()
}

// flip is no write of the program's.
//
//go:norace
func flip(b []byte) { b[0] ^= 1 }

// flipInFile changes one bit of each place at which a file has a text.
func flipInFile(t *testing.T, path, text string) {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	found := 0
	for at := 0; ; found++ {
		i := bytes.Index(content[at:], []byte(text))
		if i < 0 {
			break
		}
		_, err = f.WriteAt([]byte{content[at+i] ^ 1}, int64(at+i))
		require.NoError(t, err)
		at += i + 1
	}
	require.NotZero(t, found)
}
