package compose

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/process"
)

// env is a composition of two clusters: eu has the keys that begin with /eu/,
// under that name, and us those that begin with /us, without the prefix.
type env struct {
	*compose.Client
	t      *testing.T
	ctx    context.Context
	cfg    compose.Config
	eu, us *process.Cluster
}

// kinds are the pairs of servers that are composed.
var kinds = [][2]string{{"stoa", "stoa"}, {"etcd", "etcd"}, {"stoa", "etcd"}}

// pairs runs a test on two clusters of their own, of each kind. A few of them
// run at a time: they mostly wait.
func pairs(t *testing.T, nodes int, test func(t *testing.T, e *env)) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts clusters")
	}
	t.Parallel()
	for _, k := range kinds {
		t.Run(k[0]+"+"+k[1], func(t *testing.T) {
			t.Parallel()
			e := &env{t: t, eu: start(t, k[0], nodes), us: start(t, k[1], nodes)}
			var cancel context.CancelFunc
			e.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			e.cfg = compose.Config{
				Clusters: map[string]compose.Cluster{
					"eu": {Endpoints: e.eu.Endpoints()}, "us": {Endpoints: e.us.Endpoints()},
				},
				Routes:     []compose.Route{{Prefix: "/eu/", Cluster: "eu"}, {Prefix: "/us", Cluster: "us", Strip: true}},
				SpanRanges: true, Timeout: 3 * time.Second,
			}
			e.Client = e.client()
			test(t, e)
		})
	}
}

func start(t *testing.T, server string, nodes int) *process.Cluster {
	t.Helper()
	bin, err := process.Choose(server)
	require.NoError(t, err)
	return process.StartT(t, process.Spec{Binary: bin, Nodes: nodes})
}

// client makes a separate client.
func (e *env) client(change ...func(*compose.Config)) *compose.Client {
	e.t.Helper()
	cfg := e.cfg
	for _, f := range change {
		f(&cfg)
	}
	c, err := compose.New(cfg)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

// direct is a client of one of the clusters.
func (e *env) direct(of *process.Cluster) *clientv3.Client {
	e.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: of.Endpoints()})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (e *env) put(key, val string) {
	e.t.Helper()
	_, err := e.Put(e.ctx, key, val)
	require.NoError(e.t, err)
}

func (e *env) get(key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
	e.t.Helper()
	got, err := e.Get(e.ctx, key, opts...)
	require.NoError(e.t, err)
	return got
}
