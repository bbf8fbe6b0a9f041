package ui

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

var many = flag.Int("keys", 100_000, "how many keys there are in the test of many keys")

func start(t *testing.T, nodes int) (*process.Cluster, *client.Client) {
	bin, err := process.Choose("../../bin/stoa")
	require.NoError(t, err)
	c := process.StartT(t, process.Spec{Binary: bin, Nodes: nodes, Partitions: 4, Metrics: true, Timeout: 2 * time.Minute,
		Args: []string{"--enable-ui", "--metrics=extensive", "--bcrypt-cost=4"}})
	return c, connect(t, c, "", "")
}

func connect(t *testing.T, c *process.Cluster, user, password string) *client.Client {
	cli, err := client.New(client.Config{Endpoints: []string{c.Servers[0].ClientURL}, DialTimeout: limit, Username: user, Password: password, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { cli.Close() })
	return cli
}

func put(t *testing.T, c *client.Client, key, value string, opts ...clientv3.OpOption) {
	t.Helper()
	_, err := c.Put(t.Context(), key, value, opts...)
	require.NoError(t, err)
}

// queue is the extension of the pictures.
const queue = `local items = "/tasks/items/"

return {
  scope = { "/tasks/" },
  operations = {
    { op = "put", key = "/tasks/add" },
    { op = "put", key = "/tasks/take" },
  },
  put = function(request)
    if request.key == "/tasks/add" then
      put(items .. string.format("%020d", revision()), request.value)
      return count(items)
    end
    local oldest = range(items, 1)[1]
    if not oldest then error("the queue is empty") end
    log("taken: " .. oldest.value)
    delete(oldest.key)
    return oldest.value
  end,
}
`

// fill puts a small cluster's worth of keys.
func fill(t *testing.T, c *client.Client) {
	for i := range 40 {
		put(t, c, fmt.Sprintf("/registry/pods/default/web-%02d", i), fmt.Sprintf(`{"node": "n%d", "phase": "Running"}`, i%5))
		put(t, c, fmt.Sprintf("/registry/services/prod/svc-%02d", i), fmt.Sprintf("10.0.0.%d:8080", i))
	}
	for i := range 14 {
		put(t, c, "/config/feature", fmt.Sprintf(`{"rollout": %d}`, 5*i))
	}
	put(t, c, "/config/binary", "\x00\xff\x01")
	put(t, c, `/html/<img src=x onerror=alert(1)>`, `<script>alert(1)</script>`)
	put(t, c, "/em/tasks", queue)
	for i := range 3 {
		put(t, c, "/tasks/add", fmt.Sprintf("task %d", i))
	}
	put(t, c, "/tasks/take", "")
	for range 4 {
		_, _ = c.Put(t.Context(), "/tasks/take", "") // two of them fail
	}
	for i := range 30 {
		l, err := c.Grant(t.Context(), int64(600+i))
		require.NoError(t, err)
		put(t, c, fmt.Sprintf("/locks/job-%02d", i), "holder", clientv3.WithLease(l.ID))
	}
}

// load writes until the test ends.
func load(t *testing.T, c *client.Client) {
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	for w := range 4 {
		g.Go(func() error {
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = c.Put(ctx, fmt.Sprintf("/load/w%d/k%d", w*w, i%50), "x")
				select {
				case <-time.After(time.Duration(w+1) * 5 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return nil
		})
	}
	t.Cleanup(func() { cancel(); g.Wait() })
}

func TestViews(t *testing.T) {
	c, cli := start(t, 3)
	fill(t, cli)
	s, err := cli.Session(t.Context())
	require.NoError(t, err)
	_, err = s.Put(t.Context(), "/members/web-1", "up", client.Ephemeral())
	require.NoError(t, err)
	load(t, cli)
	b := open(t, c.Servers[0].MetricsURL)

	b.see("s3")
	b.see("Load is")
	require.Eventually(t, func() bool { return strings.Count(b.text("main"), "–") < 12 }, limit, 100*time.Millisecond) // there are rates
	b.both("overview")

	b.view("#/keys", "/registry/")
	b.press("summary", "/registry/")
	b.press("summary", "pods/")
	b.press("summary", "default/")
	b.see("web-39")
	b.press("summary", "/config/")
	b.press("button", "feature")
	b.press("button", "Show the history")
	b.see(`{"rollout": 20}`)
	require.NotContains(t, b.text("main"), `{"rollout": 15}`)
	b.press("button", "Watch")
	b.see("Watching all keys from revision")
	put(t, cli, "/registry/pods/default/web-07", "changed here")
	b.see("changed here")
	b.press("button", "Stop")
	b.both("keys")
	b.press("button", "Older")
	b.see("Created.")
	b.press("button", "Watch")
	b.see("Watching all keys from revision")
	put(t, cli, "/config/feature", "new value")
	b.see("The key has changed.")
	b.press("button", "Show")
	b.see("version 15")
	b.press("button", "Stop")
	b.press("button", "binary")
	b.see("00 ff 01")
	b.press("summary", "/html/")
	b.press("button", `<img src=x onerror=alert(1)>`)
	b.see(`<script>alert(1)</script>`)
	require.NotContains(t, b.text("main"), "Save")

	b.view("#/extensions", "tasks")
	b.press("button", "tasks")
	b.see("the queue is empty")
	b.see("taken: task 0")
	b.see("string.format")
	b.both("extensions")

	b.view("#/sessions", "/locks/job-")
	b.press("button", "More")
	b.see("Leases 26 to 31 of 31")
	b.both("sessions")

	b.view("#/requests", "etcdserverpb.KV/Put")
	b.both("requests")
	b.asked()
}

// both checks a view in both colour schemes, and takes its pictures.
func (b *browser) both(view string) {
	b.accessible(view)
	b.do(chromedp.Evaluate("scrollTo(0, 0)", nil))
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.picture("ui-" + view + "-" + scheme)
	}
}

func (b *browser) focused() (text string) {
	b.do(chromedp.Evaluate("(document.activeElement.innerText || document.activeElement.value || '').trim()", &text))
	return text
}

// tabTo goes to an element with the Tab key.
func (b *browser) tabTo(text string) {
	b.t.Helper()
	for range 100 {
		if b.focused() == text {
			return
		}
		b.do(chromedp.KeyEvent(kb.Tab))
	}
	b.t.Fatalf("the Tab key doesn't come to %q", text)
}

func TestKeyboard(t *testing.T) {
	c, cli := start(t, 1)
	put(t, cli, "/a/b/c", "value of c")
	b := open(t, c.Servers[0].MetricsURL)
	b.see("Partitions")
	b.do(chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "Skip to the content", b.focused())
	b.tabTo("Keys")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.see("1 key")
	b.tabTo("/a/")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.see("b/")
	b.tabTo("b/")
	b.do(chromedp.KeyEvent(" "))
	b.see("c")
	b.tabTo("c")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.see("value of c")
	b.tabTo("Show the history")
	b.do(chromedp.KeyEvent(" "))
	b.see("Created.")
	b.asked()
}

func TestUsers(t *testing.T) {
	c, cli := start(t, 1)
	put(t, cli, "/hers/k", "old")
	put(t, cli, "/his/k", "secret")
	for _, f := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := cli.UserAdd(ctx, "root", "r"); return err },
		func(ctx context.Context) error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func(ctx context.Context) error { _, err := cli.UserAdd(ctx, "alice", "p"); return err },
		func(ctx context.Context) error { _, err := cli.RoleAdd(ctx, "hers"); return err },
		func(ctx context.Context) error { _, err := cli.UserGrantRole(ctx, "alice", "hers"); return err },
		func(ctx context.Context) error {
			_, err := cli.RoleGrantPermission(ctx, "hers", "/hers/", clientv3.GetPrefixRangeEnd("/hers/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func(ctx context.Context) error { _, err := cli.AuthEnable(ctx); return err },
	} {
		require.NoError(t, f(t.Context()))
	}
	b := open(t, c.Servers[0].MetricsURL)
	b.see("Not shown: etcdserver: user name is empty")
	b.press("#account", "Log in")
	b.accessible("login")
	b.do(chromedp.SendKeys("#login-name", "alice", chromedp.ByQuery), chromedp.SendKeys("#login-password", "wrong"+kb.Enter, chromedp.ByQuery))
	b.see("authentication failed")
	b.set("#login-password", "")
	b.do(chromedp.SendKeys("#login-password", "p"+kb.Enter, chromedp.ByQuery))
	b.see("Log out")
	b.see("Not shown: etcdserver: permission denied") // partitions are root's
	b.view("#/keys", "permission denied")
	require.NotContains(t, b.text("main"), "/his/")
	b.view("#/keys?below=%2Fhers%2F", "1 key")
	b.press("button", "k")
	b.press("summary", "Change")
	b.set("textarea", "newer")
	b.press("button", "Save")
	b.see("version 2")
	b.accessible("change")
	root := connect(t, c, "root", "r")
	r, err := root.Get(t.Context(), "/hers/k")
	require.NoError(t, err)
	require.Equal(t, "newer", string(r.Kvs[0].Value))

	// A change that crosses another is refused.
	put(t, root, "/hers/k", "between")
	b.press("summary", "Change")
	b.set("textarea", "lost")
	b.press("button", "Save")
	b.see("has been changed meanwhile")

	// The token was in the memory of the page, and nowhere else.
	var kept string
	b.do(chromedp.Evaluate("JSON.stringify([document.cookie, Object.entries(localStorage), Object.entries(sessionStorage)])", &kept))
	require.JSONEq(t, `["", [], []]`, kept)
	b.do(chromedp.Reload())
	b.see("read-only")
	b.see("user name is empty")
	b.asked()
}

// Directories are skipped, not read.
func TestManyKeys(t *testing.T) {
	c, cli := start(t, 1)
	const dirs = 20
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for from := 0; from < *many; from += 100 {
		g.Go(func() error {
			var ops []clientv3.Op
			for i := from; i < from+100; i++ {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("/many/d%02d/k%07d", i/100%dirs, i), "v"))
			}
			_, err := cli.Txn(ctx).Then(ops...).Commit()
			return err
		})
	}
	require.NoError(t, g.Wait())
	b := open(t, c.Servers[0].MetricsURL)
	b.see("Partitions")
	for _, step := range []struct {
		press, kind, see string
		most             int // requests, without those of the overview
	}{
		{"Keys", "a", "/many/", 10},
		{"/many/", "summary", "d19/", dirs + 5},
		{"d07/", "summary", "More", 5},
		{"More", "button", "k", 5},
	} {
		b.asked()
		began := time.Now()
		b.press(step.kind, step.press)
		b.see(step.see)
		n := b.asked()
		t.Logf("%d keys: %s after %v, %d requests", *many, step.press, time.Since(began).Round(time.Millisecond), n)
		require.LessOrEqual(t, n, step.most, step.press)
	}
}
