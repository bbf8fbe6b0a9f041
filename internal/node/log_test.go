package node

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap/zapcore"

	"github.com/stoa-kv/stoa/internal/bootstrap"
)

// counted is a counter's value, or how often a histogram has observed.
func counted(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	require.NoError(t, m.Write(&d))
	return d.GetCounter().GetValue() + float64(d.GetHistogram().GetSampleCount())
}

func TestUpkeepIsLogged(t *testing.T) {
	var kept logged
	c := newCluster(t, 1, 4, kept.keep)
	c.ready()
	for range 20 {
		c.put(0, "k", "v")
	}
	_, err := c.nodes[0].Compact(t.Context(), &pb.CompactionRequest{Revision: 15, Physical: true})
	require.NoError(t, err)
	done := kept.line(t, 0, "finished scheduled compaction")
	require.EqualValues(t, 15, done["compact-revision"])
	require.EqualValues(t, 13, done["number-of-keys-compacted"])
	for _, key := range []string{"took", "hash", "current-db-size-bytes", "current-db-size-in-use-bytes"} {
		require.Contains(t, done, key)
	}
	require.NoError(t, c.nodes[0].Defragment(t.Context()))
	kept.line(t, 0, "defragmenting")
	require.Contains(t, kept.line(t, 0, "finished defragmenting directory"), "current-db-size-bytes-diff")
	content, _, _, err := c.nodes[0].Snapshot(t.Context())
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, content)
	require.NoError(t, err)
	require.NoError(t, content.Close())
	m := c.configs[0].Metrics
	require.EqualValues(t, 13, counted(t, m.Store.Compaction.Keys))
	require.EqualValues(t, 1, counted(t, m.Disk.Snapshot))
}

// Each server logs one line for a lost leader and one for its successor, however many
// partitions there are.
func TestALostLeaderIsLoggedOnce(t *testing.T) {
	var kept logged
	c := newCluster(t, 3, 4, kept.keep)
	c.ready()
	leader := c.leading()
	id := c.configs[leader].ID
	rest := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == leader })
	for _, l := range kept {
		l.TakeAll()
	}
	c.nodes[leader].core.Load().stopLoops() // a crash: nothing is handed over
	c.servers[leader].Stop()
	c.nodes[leader].transport.Close()
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(rest, func(i int) bool { l := c.nodes[i].Leader(); return l == 0 || l == id })
	}, 30*time.Second, 10*time.Millisecond)
	c.put(rest[0], "k", "v") // all partitions are led
	for _, i := range rest {
		count := func(text string) int { return kept[i].FilterMessage(text).Len() }
		require.Eventually(t, func() bool {
			lost, found := count("lost leader"), count("elected leader")
			return lost+count("changed leader") > 0 && lost == found
		}, 20*time.Second, 10*time.Millisecond)
		require.LessOrEqual(t, count("lost leader")+count("changed leader"), 3, "elections may take several attempts")
		if lost := kept[i].FilterMessage("lost leader").All(); len(lost) > 0 {
			require.Equal(t, zapcore.WarnLevel, lost[0].Level)
			require.Equal(t, bootstrap.ID(id).String(), lost[0].ContextMap()["former-leader-member-id"])
		}
	}
}

// A leader that loses its quorum leads no partition any more, and says so once.
func TestALostQuorumIsLoggedOnce(t *testing.T) {
	var kept logged
	c := newCluster(t, 3, 4, kept.keep)
	c.ready()
	c.put(0, "k", "v") // all partitions are led
	leader := c.leading()
	id := c.configs[leader].ID
	kept[leader].TakeAll()
	for i := range c.nodes {
		if i != leader {
			c.nodes[i].core.Load().stopLoops() // a crash: nothing is handed over
			c.servers[i].Stop()
			c.nodes[i].transport.Close()
		}
	}
	require.Equal(t, bootstrap.ID(id).String(), kept.line(t, leader, "lost leader")["former-leader-member-id"])
	require.Eventually(t, func() bool { // all groups have
		r := c.nodes[leader].core.Load().replica
		return !slices.ContainsFunc([]int{0, 1, 2, 3}, func(g int) bool { return r.Standing(g).Leader == id })
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, kept[leader].FilterMessageSnippet("stepped down to follower").Len())
	require.Equal(t, 1, kept[leader].FilterMessage("lost leader").Len())
}

func TestSlowRequestsAreLogged(t *testing.T) {
	var kept logged
	c := newCluster(t, 1, 1, kept.keep, func(c *Config) { c.WarningApply = 1 })
	c.ready()
	// What the server itself has applied at its start may be logged late: lines are written behind it.
	const text = "apply request took too long"
	kept[0].TakeAll()
	c.put(0, "k", "secret")
	put := kept.lineOf(t, 0, text, func(f map[string]any) bool { return strings.Contains(f["request"].(string), `put:<key:"k"`) })
	require.Contains(t, put["request"], `put:<key:"k" value_size:6`)
	require.Contains(t, put, "expected-duration")
	kept[0].TakeAll()
	c.get(0, "k", "")
	read := kept.lineOf(t, 0, text, func(f map[string]any) bool { return f["prefix"] != "" })
	require.Equal(t, "read-only range ", read["prefix"])
	require.Contains(t, read["response"], "range_response_count:1 size:")
	require.GreaterOrEqual(t, counted(t, c.configs[0].Metrics.Server.SlowApplies), 2.0)
}

func TestLateHeartbeats(t *testing.T) {
	var kept logged
	var cfg Config
	kept.keep(&cfg)
	cfg.Tick = time.Second
	n := &Node{cfg: cfg, log: cfg.Logger, lines: newLines()}
	var h heartbeats
	beat := func(term uint64, at time.Duration) {
		to, kind := uint64(0xab), raftpb.MsgHeartbeat
		h.note(n, 3, &raftpb.Message{Type: &kind, To: &to, Term: &term}, time.Unix(0, 0).Add(at))
	}
	beat(1, 0)
	beat(1, 2*time.Second) // in time
	beat(2, 9*time.Second) // the first of its term
	beat(2, 12*time.Second)
	beat(2, 15*time.Second) // logged already
	n.lines.drain(n.log)
	require.EqualValues(t, 2, counted(t, cfg.Metrics.Server.HeartbeatFailures))
	late := kept[0].All()
	require.Len(t, late, 1)
	require.Equal(t, "ab", late[0].ContextMap()["to"])
	require.Equal(t, time.Second, late[0].ContextMap()["exceeded-duration"])
}
