package compat

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/snapshot"
	"github.com/stoa-kv/stoa/test/process"
)

// TestUsersMove takes users, roles and passwords from etcd to stoa and back, by snapshots
// with authentication enabled.
func TestUsersMove(t *testing.T) {
	onlyStoa(t)
	t.Parallel()
	etcd, err := process.Peer("etcd")
	require.NoError(t, err)
	server := process.Binary{Path: etcd}
	first := process.StartT(t, process.Spec{Binary: server})
	g := guard(t, newEnv(t, shape{1, 1}, first))
	_, err = g.root.UserDelete(g.ctx, "b")
	require.NoError(t, err)
	_, err = g.a.Put(g.ctx, "/a/1", "v")
	require.NoError(t, err)

	second := process.NewT(t, process.Spec{Partitions: 2})
	s := second.Servers[0]
	_, err = snapshot.Restore(g.ctx, g.save(first, "root:root"), snapshot.Config{
		Name: s.Name, PeerURLs: []string{s.PeerURL}, InitialCluster: s.Name + "=" + s.PeerURL,
		Token: filepath.Base(second.Spec.Dir), DataDir: s.DataDir, Partitions: 2,
	})
	require.NoError(t, err)
	require.NoError(t, second.Start(g.ctx))
	g.moved(second)
	require.NoError(t, s.Kill())
	require.NoError(t, second.Start(g.ctx))
	g.moved(second)

	third := process.NewT(t, process.Spec{Binary: server})
	last := third.Servers[0]
	etcdutl, err := process.Peer("etcdutl")
	require.NoError(t, err)
	out, err := exec.Command(etcdutl, "snapshot", "restore", g.save(second, "root:root"), "--data-dir", last.DataDir, "--name", last.Name,
		"--initial-advertise-peer-urls", last.PeerURL, "--initial-cluster", last.Name+"="+last.PeerURL,
		"--initial-cluster-token", filepath.Base(third.Spec.Dir)).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, third.Start(g.ctx))
	g.moved(third)
}

// save saves a snapshot with etcdctl.
func (g *guarded) save(c *process.Cluster, user string) string {
	g.t.Helper()
	etcdctl, err := process.Peer("etcdctl")
	require.NoError(g.t, err)
	file := filepath.Join(g.t.TempDir(), "snapshot")
	out, err := exec.Command(etcdctl, "--endpoints", c.Servers[0].ClientURL, "--user", user, "snapshot", "save", file).CombinedOutput()
	require.NoError(g.t, err, string(out))
	return file
}

// moved tries what user a could do before.
func (g *guarded) moved(c *process.Cluster) {
	g.t.Helper()
	a := g.as("a", c.Endpoints()...)
	_, err := a.Put(g.ctx, "/a/1", "v")
	require.NoError(g.t, err)
	_, err = a.Put(g.ctx, "/b/1", "v")
	denied(g.t, err)
	_, err = clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "b", Password: "b", DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.ErrorContains(g.t, err, "authentication failed")
	root := g.as("root", c.Endpoints()...)
	list, err := root.UserList(g.ctx)
	require.NoError(g.t, err)
	require.Equal(g.t, []string{"a", "root"}, list.Users)
}
