package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// A whole control plane, its kube-apiserver connected to all servers: a Deployment becomes pods, which are bound to
// a node, and are collected when it is deleted, while a server is killed and the kube-apiserver is.
func TestControlPlane(t *testing.T) {
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Timeout: 2 * time.Minute})
	testControlPlane(t, c, c.Endpoints())
}

// The same through a sidecar.
func TestControlPlaneThroughSidecar(t *testing.T) {
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Timeout: 2 * time.Minute})
	s, err := c.Sidecar("sidecar")
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() { _ = s.Kill() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, s.WaitReady(ctx))
	testControlPlane(t, c, []string{s.ClientURL})
}

func testControlPlane(t *testing.T, c *process.Cluster, endpoints []string) {
	k := start(t, endpoints)
	kubeconfig := k.kubeconfig()
	k.run("kube-controller-manager", "--kubeconfig="+kubeconfig, "--secure-port=0")
	k.run("kube-scheduler", "--kubeconfig="+kubeconfig, "--secure-port=0")
	k.create(node)
	k.create(deployment)
	k.bound(10)
	k.pages()

	require.NoError(t, c.Servers[0].Kill())
	k.must("scale", "deployment/web", "--replicas=20")
	k.bound(20)
	k.renewed("kube-controller-manager")
	k.renewed("kube-scheduler")
	require.NoError(t, c.Restart(t.Context(), c.Servers[0]))

	require.NoError(t, k.process.kill())
	k.waitReady()
	k.must("scale", "deployment/web", "--replicas=15")
	k.bound(15)
	k.renewed("kube-controller-manager")
	k.renewed("kube-scheduler")
	k.compacted(c)

	k.must("delete", "deployment/web")
	eventually(t, "replica sets and pods of a deleted Deployment are collected", func() bool {
		out, err := k.kubectl("", "get", "replicasets,pods", "-o", "name")
		return err == nil && out == ""
	})
	k.sameEverywhere(c)
}

// Nobody is on the node, so it isn't ready, and pods have to tolerate that, and to end at once.
const (
	node = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "nobody"}, "status": {
		"capacity": {"cpu": "100", "memory": "100Gi", "pods": "200"}, "allocatable": {"cpu": "100", "memory": "100Gi", "pods": "200"}}}`
	deployment = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
		"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": {
			"metadata": {"labels": {"app": "web"}},
			"spec": {"terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "web", "image": "web"}]}}}}`
)

func (k *apiserver) kubeconfig() (file string) {
	file = filepath.Join(k.dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
		"users": [{"name": "c", "user": {"token": "admin"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, k.url)
	require.NoError(k.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// must has the server carry out a command, again if it is interrupted by the failure of another process.
func (k *apiserver) must(args ...string) (out string) {
	k.t.Helper()
	eventually(k.t, strings.Join(args, " "), func() bool {
		var err error
		out, err = k.kubectl("", args...)
		if err != nil {
			k.t.Logf("kubectl %v: %v: %s", args, err, out)
		}
		return err == nil
	})
	return out
}

func (k *apiserver) create(objects string) {
	k.t.Helper()
	out, err := k.kubectl(objects, "create", "-f", "-")
	require.NoError(k.t, err, out)
}

// bound waits until there are n pods, all on the node.
func (k *apiserver) bound(n int) {
	k.t.Helper()
	eventually(k.t, fmt.Sprintf("%d pods are bound", n), func() bool {
		out, err := k.kubectl("", "get", "pods", "-l", "app=web", "-o", "jsonpath={range .items[*]}{.spec.nodeName}\n{end}")
		return err == nil && len(strings.Fields(out)) == n && strings.Count(out, "nobody") == n
	})
	k.t.Logf("%d pods are bound", n)
}

// pages makes objects and lists them in pages, which show one revision.
func (k *apiserver) pages() {
	k.t.Helper()
	const n, limit = 100, 7
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c%03d", "labels": {"paged": "yes"}}}`, i))
	}
	k.create(`{"apiVersion": "v1", "kind": "List", "items": [` + strings.Join(all, ",") + `]}`)
	var names, revisions []string
	for next := ""; ; {
		var page struct {
			Metadata struct{ Continue, ResourceVersion string }
			Items    []struct{ Metadata struct{ Name string } }
		}
		path := fmt.Sprintf("/api/v1/namespaces/default/configmaps?labelSelector=paged&limit=%d&continue=%s", limit, url.QueryEscape(next))
		require.NoError(k.t, json.Unmarshal([]byte(k.must("get", "--raw", path)), &page))
		for _, item := range page.Items {
			names = append(names, item.Metadata.Name)
		}
		revisions = append(revisions, page.Metadata.ResourceVersion)
		if next = page.Metadata.Continue; next == "" {
			break
		}
	}
	require.Len(k.t, names, n)
	require.IsIncreasing(k.t, names)
	require.Len(k.t, revisions, (n+limit-1)/limit)
	for _, r := range revisions {
		require.Equal(k.t, revisions[0], r)
	}
}

// renewed waits until the leader of a component has renewed its lease twice.
func (k *apiserver) renewed(name string) {
	k.t.Helper()
	seen := map[string]bool{}
	eventually(k.t, name+" renews its lease", func() bool {
		out, err := k.kubectl("", "-n", "kube-system", "get", "lease", name, "-o", "jsonpath={.spec.renewTime}")
		if err == nil && out != "" {
			seen[out] = true
		}
		return len(seen) >= 3
	})
}

// compacted waits until the kube-apiserver, which is told to do so every 10 s, has compacted; and finds the leases
// with which it has put events.
func (k *apiserver) compacted(c *process.Cluster) {
	k.t.Helper()
	cli := k.member(c.Servers[1])
	eventually(k.t, "the history is compacted", func() bool {
		got, err := cli.Get(k.t.Context(), "compact_rev_key")
		if err != nil || len(got.Kvs) == 0 {
			return false
		}
		to, _ := strconv.ParseInt(string(got.Kvs[0].Value), 10, 64)
		_, err = cli.Get(k.t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(max(1, to-1)))
		return to > 1 && err != nil && strings.Contains(err.Error(), "compacted")
	})
	leases, err := cli.Leases(k.t.Context())
	require.NoError(k.t, err)
	require.NotEmpty(k.t, leases.Leases)
}

func (k *apiserver) member(s *process.Server) *clientv3.Client {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, Logger: zap.NewNop()})
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// sameEverywhere: the servers, of which one was killed, have the same keys at one revision.
func (k *apiserver) sameEverywhere(c *process.Cluster) {
	k.t.Helper()
	first := k.member(c.Servers[0])
	var rev int64
	hash := func(s *process.Server) uint32 {
		r, err := first.HashKV(k.t.Context(), s.ClientURL, rev)
		require.NoError(k.t, err)
		return r.Hash
	}
	eventually(k.t, "all servers have the same keys", func() bool {
		got, err := first.Get(k.t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(k.t, err)
		rev = got.Header.Revision
		for _, s := range c.Servers { // none may be behind
			_, err := k.member(s).Get(k.t.Context(), "/")
			require.NoError(k.t, err)
		}
		return hash(c.Servers[0]) == hash(c.Servers[1]) && hash(c.Servers[1]) == hash(c.Servers[2])
	})
}
