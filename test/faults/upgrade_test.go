//go:build faults

package faults

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/process"
)

// earlier is the last commit that knows no cluster version above 0.6. EarlierEnv names a
// program to be taken instead of building it.
const (
	earlier    = "1bd25d618c0fbaa2111921f5c11dd8d42ac3e020"
	EarlierEnv = "STOA_EARLIER"
)

// earlierRelease builds the program of before. A clone without the history has nothing that
// it could be built from, and then there is nothing to be tested.
func earlierRelease(t *testing.T) process.Binary {
	if path := os.Getenv(EarlierEnv); path != "" {
		bin, err := process.Choose(path)
		require.NoError(t, err)
		return bin
	}
	top, err := process.Root()
	require.NoError(t, err)
	git := func(args ...string) *exec.Cmd {
		cmd := exec.Command("git", args...)
		cmd.Dir = top
		return cmd
	}
	if out, err := git("cat-file", "-e", earlier+"^{commit}").CombinedOutput(); err != nil {
		shallow, _ := git("rev-parse", "--is-shallow-repository").Output()
		t.Skipf("NOT TESTED: upgrades from the release before. Its commit %s isn't in this clone (shallow: %s; %s). "+
			"Fetch the history (git fetch --unshallow), or name a program by %s", earlier, bytes.TrimSpace(shallow), bytes.TrimSpace(out), EarlierEnv)
	}
	dir := t.TempDir()
	source := exec.Command("sh", "-c", "git archive "+earlier+" | tar -x -C "+dir)
	source.Dir = top
	out, err := source.CombinedOutput()
	require.NoError(t, err, "%s", out)
	build := exec.Command("go", "build", "-o", "stoa-earlier", "./cmd/stoa")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return process.Binary{Path: filepath.Join(dir, "stoa-earlier"), Stoa: true}
}

// releases are the program of before and that of now.
func releases(t *testing.T) (before, now process.Binary) {
	now, err := process.UnderTest()
	require.NoError(t, err)
	if !now.Stoa {
		t.Skip("only stoa has an earlier release here")
	}
	return earlierRelease(t), now
}

// A cluster goes from the release before to this one, back before its version has moved, forth,
// back by a downgrade, and forth again, one member after the other, under the load and with
// the checks of the other tests.
func TestUpgrade(t *testing.T) {
	before, now := releases(t)
	for _, parts := range []int{1, 4} {
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) { rollForthAndBack(t, before, now, parts) })
	}
}

// loadBetween is how long the load runs before the next member is replaced. It is longer than
// the interval in which the leader looks at the releases of the members.
const loadBetween = 2 * time.Second

// rolling is a cluster whose members are replaced by those of other releases.
type rolling struct {
	t       *testing.T
	c       *process.Cluster
	rec     *recorder
	restart int
}

func rollForthAndBack(t *testing.T, before, now process.Binary, parts int) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	c := process.StartT(t, process.Spec{Binary: before, Nodes: 3, Partitions: parts})
	cli, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop(),
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
	require.NoError(t, err)
	defer cli.Close()
	r := &rolling{t: t, c: c, rec: &recorder{start: time.Now()}}
	live := newLiveWatch(t, cli)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ids atomic.Int64
	var work sync.WaitGroup
	for i := range *clients {
		var conns []*grpc.ClientConn
		for _, s := range c.Servers {
			conn, err := dial(s.ClientURL)
			require.NoError(t, err)
			defer conn.Close()
			conns = append(conns, conn)
		}
		cl := &client{rnd: rand.New(rand.NewPCG(seed, uint64(i))), ids: func() int64 { return ids.Add(1) }, conns: func() []*grpc.ClientConn { return conns }}
		work.Go(func() { drive(ctx, i, cl, r.rec) })
	}

	r.replace(now, 0, 1)
	r.requireVersion("0.6.0", 0, 1)
	r.replace(before, 1, 0)
	r.say("taken back before the version has moved")
	r.replace(now, 0, 1, 2)
	r.awaitVersion("0.7.0")
	r.refused(before, 1, now)
	r.downgrade(cli)
	r.replace(before, 0, 1, 2)
	r.replace(now, 2, 1, 0)
	r.awaitVersion("0.7.0")

	cancel()
	work.Wait()
	judge(t, c, cli, r.rec, live)
}

func (r *rolling) say(format string, a ...any) {
	r.t.Logf("%6.2fs %s", time.Since(r.rec.start).Seconds(), fmt.Sprintf(format, a...))
}

// replace restarts members with another release, one after the other. Every third is killed.
func (r *rolling) replace(bin process.Binary, members ...int) {
	r.t.Helper()
	for _, i := range members {
		s, began := r.c.Servers[i], r.rec.now()
		if r.restart++; r.restart%3 == 0 {
			require.NoError(r.t, s.Kill())
		} else {
			_, _, err := s.Stop()
			require.NoError(r.t, err)
		}
		s.Use(bin)
		require.NoError(r.t, r.c.Restart(r.t.Context(), s))
		time.Sleep(loadBetween)
		r.say("%s runs %s; the longest time without a write: %v", s.Name, filepath.Base(bin.Path), r.rec.gap(began).Round(time.Millisecond))
	}
}

func (r *rolling) version(i int) string {
	_, cluster, err := r.c.Servers[i].Versions()
	if err != nil {
		return err.Error()
	}
	return cluster
}

func (r *rolling) requireVersion(want string, members ...int) {
	r.t.Helper()
	for _, i := range members {
		require.Equal(r.t, want, r.version(i))
	}
}

func (r *rolling) awaitVersion(want string) {
	r.t.Helper()
	for i := range r.c.Servers {
		require.Eventually(r.t, func() bool { return r.version(i) == want }, time.Minute, 50*time.Millisecond, "%s has version %s", r.c.Servers[i].Name, r.version(i))
	}
	r.say("the cluster's version is %s", want)
}

// refused starts the release before on the data of the later version.
func (r *rolling) refused(before process.Binary, i int, now process.Binary) {
	r.t.Helper()
	s := r.c.Servers[i]
	_, _, err := s.Stop()
	require.NoError(r.t, err)
	s.Use(before)
	require.NoError(r.t, s.Start())
	code, err := s.Wait(30 * time.Second)
	require.NoError(r.t, err)
	require.NotZero(r.t, code)
	require.Contains(r.t, s.LogTail(2000), "it was written at the cluster version level 7, and this is stoa 0.6.0")
	s.Use(now)
	require.NoError(r.t, r.c.Restart(r.t.Context(), s))
	r.say("%s has refused to run the release before", s.Name)
}

// downgrade takes the version back, and waits until all files have it.
func (r *rolling) downgrade(cli *clientv3.Client) {
	r.t.Helper()
	const ready = "The server is ready to downgrade"
	counts := make([]int, len(r.c.Servers))
	for i, s := range r.c.Servers {
		counts[i] = strings.Count(s.LogTail(1<<30), ready)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	require.Eventually(r.t, func() bool {
		_, err := cli.Downgrade(ctx, clientv3.DowngradeEnable, "0.6")
		return err == nil || strings.Contains(err.Error(), "downgrade job in progress")
	}, time.Minute, 100*time.Millisecond)
	for i, s := range r.c.Servers {
		require.Eventually(r.t, func() bool { return strings.Count(s.LogTail(1<<30), ready) > counts[i] }, time.Minute, 50*time.Millisecond, s.Name)
	}
	r.awaitVersion("0.6.0")
}

// A server of the release before can't join a cluster whose version it doesn't know, and both
// sides say so.
func TestAnEarlierReleaseDoesNotJoin(t *testing.T) {
	before, now := releases(t)
	c := process.StartT(t, process.Spec{Binary: now, Nodes: 1, Partitions: 2})
	r := &rolling{t: t, c: c, rec: &recorder{start: time.Now()}}
	r.awaitVersion("0.7.0")
	first := c.Servers[0]
	s, err := c.Joining("late", process.Place{Host: "127.0.0.1"})
	require.NoError(t, err)
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{first.ClientURL}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	_, err = cli.MemberAddAsLearner(t.Context(), []string{s.PeerURL})
	require.NoError(t, err)
	s.Use(before)
	require.NoError(t, s.Start())
	said := func(s *process.Server, text string) {
		require.Eventually(t, func() bool { return strings.Contains(s.LogTail(1<<30), text) }, time.Minute, 50*time.Millisecond, text)
	}
	said(first, "it is too old: the cluster's version is 0.7.0, and it knows none above 0.6.0. Start it with stoa 0.7.0 or later")
	code, err := s.Wait(30 * time.Second)
	require.NoError(t, err)
	require.NotZero(t, code)
	require.Contains(t, s.LogTail(2000), "it is too old: the cluster's version is level 7, and it knows none above 0.6.0")
	s.Use(now)
	require.NoError(t, c.Restart(t.Context(), s))
	r.awaitVersion("0.7.0")
}
