package compat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The only member that is left becomes a cluster of its own, whose users and rights are those of before.
func TestForceNewClusterWithUsers(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		g := guard(t, e)
		_, err := g.a.Put(e.ctx, "/a/k", "before")
		require.NoError(t, err)
		_, err = g.as("root", e.Servers[0].ClientURL).Get(e.ctx, "/a/k") // so it has it
		require.NoError(t, err)
		for _, s := range e.Servers {
			require.NoError(t, s.Kill())
		}
		forced := e.Servers[0].With("--force-new-cluster")
		e.Servers[0] = forced
		require.NoError(t, e.Restart(t.Context(), forced))
		root := g.as("root", forced.ClientURL)
		require.Eventually(t, func() bool {
			list, err := root.MemberList(e.ctx)
			return err == nil && len(list.Members) == 1
		}, 30*time.Second, 50*time.Millisecond)
		got, err := root.Get(e.ctx, "/a/k")
		require.NoError(t, err)
		require.Equal(t, "before", string(got.Kvs[0].Value))
		a := g.as("a", forced.ClientURL)
		_, err = a.Put(e.ctx, "/a/k", "after")
		require.NoError(t, err)
		_, err = a.Put(e.ctx, "/b/k", "after")
		require.ErrorContains(t, err, "permission denied")
		none, err := clientv3.New(clientv3.Config{Endpoints: []string{forced.ClientURL}, DialTimeout: 10 * time.Second})
		require.NoError(t, err)
		defer none.Close()
		_, err = none.Get(e.ctx, "/a/k")
		require.ErrorContains(t, err, "user name is empty")
	})
}
