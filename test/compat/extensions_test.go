package compat

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/recipes"
)

// needExtensions skips on etcd, which has none.
func needExtensions(t *testing.T) {
	t.Helper()
	if !underTest(t).Stoa {
		t.Skip("etcd runs no extensions")
	}
}

// recipe registers a recipe for this test alone and returns its root.
func (e *env) recipe(name string) string {
	e.t.Helper()
	root := e.root + name
	if name != "counter" && name != "rename" {
		root += "/"
	}
	own := strings.Trim(strings.ReplaceAll(e.root, "/", "-"), "-") + "-" + name
	require.NoError(e.t, recipes.RegisterAt(e.ctx, e.cli, own, name, root))
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		e.cli.Delete(ctx, "/em/"+own)
	})
	return root
}

// extended runs a test with n clients of one name, spread over the servers, on those
// shapes that differ for extensions, or on all that are asked for.
func extended(t *testing.T, n int, test func(t *testing.T, e *env, clients []*clientv3.Client)) {
	needExtensions(t)
	matrix(t, func(t *testing.T, e *env) {
		if os.Getenv("STOA_COMPAT_MATRIX") == "" && !slices.Contains([]shape{{1, 1}, {1, 2}, {3, 2}}, e.shape) {
			t.Skip("as on others")
		}
		e.cli = e.named("tester", e.Endpoints()...)
		clients := make([]*clientv3.Client, n)
		for i := range clients {
			clients[i] = e.named("tester", e.Endpoints()[i%e.nodes])
		}
		test(t, e, clients)
	})
}

// together runs a function n times at once and fails with the first error.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	for range n {
		require.NoError(t, <-errs)
	}
}

func (e *env) session(ttl int64) clientv3.LeaseID {
	e.t.Helper()
	l, err := e.cli.Grant(e.ctx, ttl)
	require.NoError(e.t, err)
	return l.ID
}

// exists waits for a key that shows that a call waits.
func (e *env) exists(key string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return len(e.get(key).Kvs) == 1 }, time.Minute, 5*time.Millisecond, key)
}
