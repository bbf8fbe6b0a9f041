package compose

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/compose/osc"
	"github.com/stoa-kv/stoa/test/process"
)

// keys are those of each cluster, behind its prefix; on stoa each is in a partition of
// its own.
var keys = []string{"a/x", "b/x", "c/x", "d/x"}

// prefix of the keys of a cluster.
func prefix(cluster int) string { return fmt.Sprintf("/c%d/", cluster) }

func name(cluster int) string { return fmt.Sprintf("c%d", cluster) }

// clusters are the real ones of a test.
type clusters []*cluster

type cluster struct {
	*process.Cluster
	voters  []*process.Server
	learner *process.Server // nil: there is none
}

// start starts clusters of three servers each; etcd's may have a learner beside.
func start(t *testing.T, server string, count int, learners bool) clusters {
	t.Helper()
	bin, err := process.Choose(server)
	if server == "stoa" {
		bin, err = process.UnderTest()
	}
	require.NoError(t, err)
	all := make(clusters, count)
	done := make(chan error, count)
	for i := range all {
		c := process.NewT(t, process.Spec{Binary: bin, Nodes: 3, Partitions: 2})
		all[i] = &cluster{Cluster: c, voters: slices.Clone(c.Servers)}
		go func() { done <- c.Start(t.Context()) }()
	}
	for range all {
		require.NoError(t, <-done)
	}
	for _, c := range all {
		if learners {
			c.learn(t)
		}
	}
	return all
}

// learn adds a learner.
func (c *cluster) learn(t *testing.T) {
	s, err := c.Joining("learner", process.Place{Host: "127.0.0.1"})
	require.NoError(t, err)
	cli := dial(t, c.voters...)
	require.Eventually(t, func() bool {
		_, err = cli.MemberAddAsLearner(t.Context(), []string{s.PeerURL})
		return err == nil
	}, 10*time.Second, 100*time.Millisecond, "adding a learner")
	require.NoError(t, s.Start())
	require.NoError(t, s.WaitReady(soon(t)))
	c.learner = s
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, servers ...*process.Server) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: urls(servers), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { cli.Close() })
	return cli
}

func urls(servers []*process.Server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.ClientURL)
	}
	return out
}

// compose makes a client of all clusters with a near member in each.
func (all clusters) compose(t *testing.T, near func(*cluster) *process.Server, options ...grpc.DialOption) *compose.Client {
	t.Helper()
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}, Timeout: 2 * time.Second, SpanRanges: true}
	for i, c := range all {
		cfg.Clusters[name(i)] = compose.Cluster{Endpoints: urls(c.voters), Near: []string{near(c).ClientURL}, DialOptions: options}
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: prefix(i), Cluster: name(i)})
	}
	c, err := compose.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// oneOrder has one client for all clusters: its switches are synced.
func oneOrder(c *compose.Client, clusters int) []*compose.Client {
	return slices.Repeat([]*compose.Client{c}, clusters)
}

// orderPerCluster has one client for each cluster, which never switches: every cluster
// is consistent by itself, and nothing orders them among each other.
func orderPerCluster(c *compose.Client, clusters int) []*compose.Client {
	var all []*compose.Client
	for range clusters {
		all = append(all, c.Fork())
	}
	return all
}

// leader of the voters, nil while none is known.
func (c *cluster) leader(t *testing.T) *process.Server {
	for _, s := range c.voters {
		cli := dial(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		st, err := cli.Status(ctx, s.ClientURL)
		cancel()
		if err == nil && st.Leader == st.Header.MemberId {
			return s
		}
	}
	return nil
}

// follower is a voter that doesn't lead.
func (c *cluster) follower(t *testing.T) *process.Server {
	var lead *process.Server
	require.Eventually(t, func() bool { lead = c.leader(t); return lead != nil }, time.Minute, 100*time.Millisecond)
	return c.voters[(slices.Index(c.voters, lead)+1)%len(c.voters)]
}

// told is each cluster's own history, when no request is in flight any more.
func (all clusters) told(t *testing.T) []osc.Told {
	t.Helper()
	var told []osc.Told
	for i, c := range all {
		cli := dial(t, c.voters...)
		var stop int64 // behind it nothing is to come
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			resp, err := cli.Put(ctx, "/stop", "")
			if err == nil {
				stop = resp.Header.Revision
			}
			return err == nil
		}, 30*time.Second, 100*time.Millisecond, "writes to cluster %d don't resume", i)
		h := osc.Told{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for r := range cli.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
			require.NoError(t, r.Err())
			for _, ev := range r.Events {
				h.Add(string(ev.Kv.Key), string(ev.Kv.Value), ev.Kv.ModRevision)
			}
			if last := r.Events; len(last) > 0 && last[len(last)-1].Kv.ModRevision >= stop {
				break
			}
		}
		cancel()
		require.Contains(t, h, "/stop", "the history of cluster %d has no end", i)
		told = append(told, h)
	}
	return told
}

// check checks the clients' history; nil if it is consistent.
func (all clusters) check(t *testing.T, h *osc.History) error {
	t.Helper()
	ops, err := osc.Resolve(h.Ops(), all.told(t))
	if err != nil {
		return err
	}
	begun := time.Now()
	err = osc.Check(ops)
	updates := 0
	for _, o := range ops {
		if o.Update {
			updates++
		}
	}
	t.Logf("%d operations sent, %d happened, %d of them updates; checked in %v", len(h.Ops()), len(ops), updates, time.Since(begun).Round(time.Millisecond))
	return err
}

// clusterOf is the number of the cluster that a key belongs to.
func clusterOf(key string) int {
	i := 0
	for !strings.HasPrefix(key, prefix(i)) {
		i++
	}
	return i
}
