package life

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

func (l *life) resize(how string) {
	const most = 10
	now := l.partitions()
	to := min(now+1+l.rnd.IntN(4), most)
	if how == "shrink" {
		to = max(now-1-l.rnd.IntN(4), 1)
	}
	if to == now {
		return
	}
	l.say("  from %d to %d partitions", now, to)
	l.ctl(fmt.Sprintf("partition %s %d", how, to))
	require.Equal(l.t, to, l.partitions())
}

func (l *life) partitions() int {
	_, page := get(l.web(), l.leader().ClientURL+"/metrics")
	n := int(metric(page, "stoa_partitions"))
	require.NotZero(l.t, n, "%.300s", page)
	return n
}

func (l *life) pin() {
	if l.partitions() == 1 {
		return
	}
	to := l.rnd.IntN(l.partitions())
	l.ctl(fmt.Sprintf("partition pin /life/etcd0/ --to %d", to))
	l.ctl(fmt.Sprintf("partition move /life/etcd1/ --to %d", l.rnd.IntN(l.partitions())))
	l.ctl("partition list -w table")
	l.ctl("partition unpin /life/etcd0/")
}

func (l *life) defrag() {
	for _, s := range l.c.Servers {
		out, err := l.at([]string{"stoactl", "etcdctl"}[l.rnd.IntN(2)], []string{s.ClientURL}, "defrag")
		require.NoError(l.t, err, "%s", out)
	}
}

// compact leaves so much that no watch is behind.
func (l *life) compact() {
	rev := l.status(l.any()).Header.Revision
	physical := []string{"", " --physical"}[l.rnd.IntN(2)]
	if rev > 300 {
		l.either(fmt.Sprintf("compaction %d%s", rev-int64(100+l.rnd.IntN(150)), physical))
	}
}

// backup saves and restores into a cluster of one beside this one, which has to have the same.
func (l *life) backup() {
	dir := l.dir("backup")
	file := filepath.Join(dir, fmt.Sprintf("%d.snapshot", time.Now().UnixNano()))
	l.load.mu.Lock()
	before := map[string]ack{}
	for key, c := range l.load.cells {
		before[key] = c.ack
	}
	l.load.mu.Unlock()
	out, err := l.at([]string{"stoactl", "etcdctl"}[l.rnd.IntN(2)], []string{l.any().ClientURL}, "snapshot save "+file)
	require.NoError(l.t, err, "%s", out)
	path, err := process.Stoactl()
	require.NoError(l.t, err)
	other, err := process.New(process.Spec{Binary: l.c.Spec.Binary, Dir: dir, Partitions: 3, TLS: true, Args: l.ca.Flags("")})
	require.NoError(l.t, err)
	s := other.Servers[0]
	l.shell(path, "snapshot", "status", file)
	l.shell(path, "snapshot", "restore", file, "--data-dir="+s.DataDir, "--name="+s.Name, "--initial-advertise-peer-urls="+s.PeerURL,
		"--initial-cluster="+s.Name+"="+s.PeerURL, "--partitions=3")
	require.NoError(l.t, other.Start(l.ctx))
	l.root([]string{s.ClientURL}, func(ctx context.Context, cli *clientv3.Client) {
		resp, err := cli.Get(ctx, "/life/", clientv3.WithPrefix())
		require.NoError(l.t, err)
		revs := map[string]int64{}
		for _, kv := range resp.Kvs {
			revs[string(kv.Key)] = kv.ModRevision
		}
		for key, a := range before {
			require.GreaterOrEqual(l.t, revs[key], a.rev, "%s is not in the backup", key)
		}
	})
	require.NoError(l.t, other.Close())
	require.NoError(l.t, os.RemoveAll(dir))
}

// restore is "Restore", with nothing written behind the backup.
func (l *life) restore() {
	l.load.still(l.restoreAll)
	l.load.renew()
	l.startSidecar()
}

func (l *life) restoreAll() {
	path, err := process.Stoactl()
	require.NoError(l.t, err)
	file := filepath.Join(l.dir("restore"), fmt.Sprintf("%d.snapshot", time.Now().UnixNano()))
	out, err := l.at("stoactl", []string{l.any().ClientURL}, "snapshot save "+file)
	require.NoError(l.t, err, "%s", out)
	var initial []string
	for _, s := range l.c.Servers {
		_, _, err := s.Stop()
		require.NoError(l.t, err)
		require.NoError(l.t, os.RemoveAll(s.DataDir))
		initial = append(initial, s.Name+"="+s.PeerURL)
	}
	parts := 1 + l.rnd.IntN(5)
	for _, s := range l.c.Servers {
		l.shell(path, "snapshot", "restore", file, "--data-dir="+s.DataDir, "--name="+s.Name, "--initial-advertise-peer-urls="+s.PeerURL,
			"--initial-cluster="+strings.Join(initial, ","), "--initial-cluster-token="+filepath.Base(file), fmt.Sprintf("--partitions=%d", parts),
			"--bump-revision=1000000", "--mark-compacted")
	}
	l.load.restoring.Store(true)
	defer l.load.restoring.Store(false)
	rev := int64(0)
	for _, s := range l.c.Servers {
		require.NoError(l.t, s.Start())
	}
	for _, s := range l.c.Servers {
		l.ready(s)
		rev = max(rev, l.status(s).Header.Revision)
	}
	for _, w := range l.watchers { // they list anew
		w.mu.Lock()
		w.at = rev
		w.mu.Unlock()
	}
	l.load.mu.Lock()
	l.load.acks = nil // and don't see what was before
	l.load.mu.Unlock()
}

// noSpace is "Space": the alarm is raised, and lowered again.
func (l *life) noSpace() {
	l.root(l.c.Endpoints(), func(ctx context.Context, cli *clientv3.Client) {
		value := strings.Repeat("x", 1<<20)
		var err error
		for i := 0; err == nil && i < 200; i++ {
			_, err = cli.Put(ctx, fmt.Sprintf("/ballast/%d", i%20), value)
		}
		require.ErrorContains(l.t, err, "space exceeded")
	})
	time.Sleep(2 * time.Second)
	require.Contains(l.t, l.either("alarm list"), "NOSPACE")
	l.root(l.c.Endpoints(), func(ctx context.Context, cli *clientv3.Client) {
		_, err := cli.Delete(ctx, "/ballast/", clientv3.WithPrefix())
		require.NoError(l.t, err)
	})
	rev := l.status(l.any()).Header.Revision
	l.either(fmt.Sprintf("compaction %d", rev))
	l.either("defrag --cluster")
	l.either("alarm disarm")
	require.NotContains(l.t, l.either("alarm list"), "NOSPACE")
}

const (
	extensionBefore = `return { scope = { "/ext/" }, operations = { { op = "put", key = "/ext/call" } },
  put = function(r) put("/ext/n", (tonumber(get("/ext/n") or 0)) + 1) return get("/ext/n") end }`
	extensionAfter = `return { scope = { "/ext/" }, operations = { { op = "put", key = "/ext/call" } },
  put = function(r) local n = tonumber(get("/ext/n") or 0) + 1 put("/ext/n", n) put("/ext/last", n) return n end }`
)

// extension registers, replaces and removes one, while it is called: each call counts once.
func (l *life) extension() {
	file := filepath.Join(l.dir("extension"), "life.lua")
	write := func(text string) {
		require.NoError(l.t, os.WriteFile(file, []byte(text), 0o644))
		l.ctl("extension register life " + file)
	}
	l.root(l.c.Endpoints(), func(ctx context.Context, cli *clientv3.Client) {
		_, err := cli.Delete(ctx, "/ext/", clientv3.WithPrefix())
		require.NoError(l.t, err)
		write(extensionBefore)
		calls := 0
		call := func() {
			_, err := cli.Put(ctx, "/ext/call", "")
			require.NoError(l.t, err)
			calls++
		}
		for i := range 40 {
			call()
			switch i {
			case 10:
				write(extensionAfter)
			case 20:
				require.NoError(l.t, l.another(nil).Kill())
				for _, s := range l.c.Servers {
					if !s.Running() {
						l.start(s)
					}
				}
				l.well()
			case 25:
				l.ctl("extension disable life")
				l.ctl("extension enable life")
			}
		}
		l.ctl("extension show life")
		l.ctl("extension list")
		l.ctl("extension remove life")
		resp, err := cli.Get(ctx, "/ext/n")
		require.NoError(l.t, err)
		require.Len(l.t, resp.Kvs, 1)
		require.Equal(l.t, fmt.Sprint(calls), string(resp.Kvs[0].Value))
	})
}
