package compose

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/process"
)

// secured is a cluster of one server that requires TLS with client
// certificates.
func secured(t *testing.T, server string, a *process.Authority) *process.Cluster {
	t.Helper()
	bin, err := process.Choose(server)
	require.NoError(t, err)
	return process.StartT(t, process.Spec{Binary: bin, TLS: true, Args: a.Flags("")})
}

var twoRoutes = []compose.Route{{Prefix: "/eu/", Cluster: "eu"}, {Prefix: "/us/", Cluster: "us", Strip: true}}

// works uses all kinds of connections of a composition to its clusters.
func works(t *testing.T, c *compose.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	feed := c.NewFeed()
	defer feed.Close()
	for _, prefix := range []string{"/eu/", "/us/"} {
		_, err := feed.Watch(ctx, prefix, clientv3.WithPrefix())
		require.NoError(t, err)
	}
	s, err := c.Session(ctx)
	require.NoError(t, err)
	for _, prefix := range []string{"/eu/", "/us/"} {
		_, err := s.Put(ctx, prefix+"a", prefix, client.Ephemeral())
		require.NoError(t, err)
		n, err := feed.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, prefix+"a", string(n.Events[0].Kv.Key))
	}
	for _, prefix := range []string{"/eu/", "/us/", "/eu/", "/us/"} {
		got, err := c.Get(ctx, prefix+"a")
		require.NoError(t, err)
		require.Equal(t, prefix, string(got.Kvs[0].Value))
		txn, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Version(prefix+"a"), "=", 1)).Then(clientv3.OpGet(prefix + "a")).Commit()
		require.NoError(t, err)
		require.True(t, txn.Succeeded)
	}
	require.NoError(t, s.Close(ctx))
	for _, prefix := range []string{"/eu/", "/us/"} {
		require.Eventually(t, func() bool {
			require.NoError(t, c.Sync(ctx, strings.Trim(prefix, "/")))
			got, err := c.Get(ctx, prefix+"a")
			return err == nil && len(got.Kvs) == 0
		}, 20*time.Second, 20*time.Millisecond, "what was tied to the session is gone")
	}
}

// TestTLS composes clusters each of which trusts an authority of its own.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k[0]+"+"+k[1], func(t *testing.T) {
			t.Parallel()
			euAuthority, usAuthority := process.NewAuthority(t), process.NewAuthority(t)
			eu, us := secured(t, k[0], euAuthority), secured(t, k[1], usAuthority)
			secure := func(a *process.Authority, certificate string) *compose.Client {
				c, err := compose.New(compose.Config{
					Clusters: map[string]compose.Cluster{
						"eu": {Endpoints: eu.Endpoints(), TLS: euAuthority.Client("client")},
						"us": {Endpoints: us.Endpoints(), TLS: a.Client(certificate)},
					},
					Routes: twoRoutes,
				})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			works(t, secure(usAuthority, "client"))

			for what, c := range map[string]*compose.Client{
				"of a server that isn't trusted": secure(euAuthority, "client"), "without a certificate of its own": secure(usAuthority, ""),
			} {
				never(t, "a put "+what, func() error { _, err := c.Put(t.Context(), "/us/a", ""); return err })
				_, err := c.Put(t.Context(), "/eu/a", "")
				require.NoError(t, err)
				_, err = c.Delete(t.Context(), "/eu/a")
				require.NoError(t, err)
			}
			composedBySecureStoactl(t, eu, us, euAuthority, usAuthority)
		})
	}
}

// composedBySecureStoactl does the same with stoactl and a file of --compose.
func composedBySecureStoactl(t *testing.T, eu, us *process.Cluster, euAuthority, usAuthority *process.Authority) {
	dir := t.TempDir()
	require.NoError(t, process.LinkStoactl(dir))
	// What is not absolute is relative to the file.
	relative, err := filepath.Rel(dir, usAuthority.File(""))
	require.NoError(t, err)
	file := filepath.Join(dir, "compose.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
clusters:
  eu:
    endpoints: [%q]
    cacert: %s
    cert: %s
    key: %s
  us:
    endpoints: [%q]
    cacert: %[6]s/ca.pem
    cert: %[6]s/client.pem
    key: %[6]s/client.key
routes:
- {prefix: /eu/, cluster: eu}
- {prefix: /us/, cluster: us, strip: true}
`, eu.Endpoints()[0], euAuthority.File("ca.pem"), euAuthority.File("client.pem"), euAuthority.File("client.key"), us.Endpoints()[0], relative), 0o600))
	run := func(args ...string) string {
		out, err := exec.Command(filepath.Join(dir, "stoactl"), append([]string{"--compose", file}, args...)...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		return string(out)
	}
	run("put", "/eu/b", "1")
	run("put", "/us/b", "2")
	require.Equal(t, "/eu/b\n1\n/us/b\n2\n", run("get", "--prefix", "/"))
}

// TestPassword composes a cluster of etcd with authentication and one of stoa,
// which has no users.
func TestPassword(t *testing.T) {
	t.Parallel()
	eu, us := start(t, "stoa", 1), start(t, "etcd", 1)
	admin, err := clientv3.New(clientv3.Config{Endpoints: us.Endpoints()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = admin.UserAdd(ctx, "root", "secret")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)
	login := func(user, password string, kind compose.Kind) *compose.Client {
		c, err := compose.New(compose.Config{
			Clusters: map[string]compose.Cluster{
				"eu": {Endpoints: eu.Endpoints()},
				"us": {Endpoints: us.Endpoints(), Username: user, Password: password, Kind: kind},
			},
			Routes: twoRoutes,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	works(t, login("root", "secret", compose.Auto))
	works(t, login("root", "secret", compose.Etcd))

	for what, c := range map[string]*compose.Client{
		"with a wrong password": login("root", "wrong", compose.Auto), "without a password": login("", "", compose.Auto),
	} {
		began := time.Now()
		_, err := c.Put(ctx, "/us/a", "")
		require.Error(t, err, what)
		require.Less(t, time.Since(began), soon, "%s: %v", what, err)
		t.Logf("%s: %v", what, err)
		_, err = c.Put(ctx, "/eu/a", "")
		require.NoError(t, err, what)
	}
}
