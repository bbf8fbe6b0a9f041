package node

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Before a server gives up the other members of its cluster, they are asked whether they run, also those that only its log has.
func TestForcedAsksTheMembersOfItsLog(t *testing.T) {
	c := newCluster(t, 1, 2, func(c *Config) { c.FlushInterval, c.MaxLearners = time.Hour, 1 })
	c.ready()
	n, url := c.nodes[0], "http://127.0.0.1:1"
	require.NoError(t, n.flushNow())
	added, _, err := n.MemberAdd(t.Context(), []string{url}, true)
	require.NoError(t, err)

	cfg := c.configs[0]
	cfg.DataDir = t.TempDir() // as after a kill -9
	require.NoError(t, os.CopyFS(cfg.DataDir, os.DirFS(c.configs[0].DataDir)))
	var mu sync.Mutex
	var asked []uint64
	cfg.ForceNewCluster, cfg.Runs = true, func(m *pb.Member) bool {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, m.GetID())
		return slices.Equal(m.GetPeerURLs(), []string{url})
	}
	_, err = Start(cfg)
	require.ErrorContains(t, err, url)
	require.Equal(t, []uint64{added.GetID()}, asked)
}
