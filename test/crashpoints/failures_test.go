package crashpoints

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/disk"
	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/process/syscalls"
)

const (
	logFiles  = "/member/wal/"
	newLog    = ".wal.tmp"
	stateFile = "/member/snap/db"
)

// putUntil puts keys one after the other until one fails, or n are there, and returns how many
// were acknowledged.
func putUntil(ctx context.Context, c *client.Client, prefix string, n, size int) (acknowledged int, err error) {
	for i := range n {
		if _, err := c.Put(ctx, fmt.Sprintf("%s/%d/%d", prefix, i%5, i), strings.Repeat("v", size)); err != nil {
			return i, err
		}
	}
	return n, nil
}

func requireKeys(t *testing.T, c *client.Client, prefix string, n int) {
	t.Helper()
	for i := range n {
		r, err := c.Get(within(t, 10*time.Second), fmt.Sprintf("%s/%d/%d", prefix, i%5, i), clientv3.WithKeysOnly())
		require.NoError(t, err)
		require.Len(t, r.Kvs, 1, "key %d of %d was acknowledged and is lost", i, n)
	}
}

// A call that fails stops the server at once, with a line that names the file and the call,
// and without a second attempt; what it has acknowledged is there when it is started again. A
// write that is short is continued.
func TestAFailedCallStopsTheServer(t *testing.T) {
	const large = 1 << 20 // so that the log needs a new segment
	for _, f := range []struct {
		name string
		plan syscalls.Plan
		size int // bytes of a value
		says []string
	}{
		{"log, disk full", syscalls.Plan{Kinds: []string{syscalls.Write}, Path: logFiles, Errno: syscall.ENOSPC}, 10, []string{"writing", ".wal", "no space left on device"}},
		{"log, write error", syscalls.Plan{Kinds: []string{syscalls.Write}, Path: logFiles, Errno: syscall.EIO}, 10, []string{"writing", ".wal", "input/output error"}},
		{"log, sync error", syscalls.Plan{Kinds: []string{syscalls.Sync}, Path: logFiles, Errno: syscall.EIO}, 10, []string{"syncing", ".wal", "fdatasync", "input/output error"}},
		{"log, short write", syscalls.Plan{Kinds: []string{syscalls.Write}, Path: logFiles, Short: true}, 10, nil},
		{"new segment, too many files", syscalls.Plan{Kinds: []string{syscalls.Create}, Path: newLog, Errno: syscall.EMFILE}, large, []string{"creating log segment", "too many open files"}},
		{"new segment, disk full", syscalls.Plan{Kinds: []string{syscalls.Size}, Path: newLog, Errno: syscall.ENOSPC}, large, []string{"creating log segment", "preallocating", "no space left on device"}},
		{"new segment, sync error", syscalls.Plan{Kinds: []string{syscalls.Sync}, Path: newLog, Errno: syscall.EIO}, large, []string{"creating log segment", "fdatasync", "input/output error"}},
		{"new segment, no name", syscalls.Plan{Kinds: []string{syscalls.Rename}, Path: newLog, Errno: syscall.EIO}, large, []string{"creating log segment", "rename", "input/output error"}},
		{"state, disk full", syscalls.Plan{Kinds: []string{syscalls.Write}, Path: stateFile, Errno: syscall.ENOSPC}, 10, []string{"flushing to the backend file", stateFile, "no space left on device"}},
		{"state, disk read-only", syscalls.Plan{Kinds: []string{syscalls.Write}, Path: stateFile, Errno: syscall.EROFS}, 10, []string{"flushing to the backend file", stateFile, "read-only file system"}},
		{"state, second write fails", syscalls.Plan{Kinds: []string{syscalls.Write}, Path: stateFile, Skip: 1, Errno: syscall.EIO}, 10, []string{"flushing to the backend file", stateFile, "input/output error"}},
		{"state, sync error of the pages", syscalls.Plan{Kinds: []string{syscalls.Sync}, Path: stateFile, Errno: syscall.EIO}, 10, []string{"flushing to the backend file", stateFile, "input/output error"}},
		{"state, sync error of the header", syscalls.Plan{Kinds: []string{syscalls.Sync}, Path: stateFile, Skip: 1, Errno: syscall.EIO}, 10, []string{"flushing to the backend file", stateFile, "input/output error"}},
		{"state, short write", syscalls.Plan{Kinds: []string{syscalls.Write}, Path: stateFile, Short: true}, 10, nil},
	} {
		t.Run(f.name, func(t *testing.T) {
			if f.size == large && *stride > 1 {
				t.Skip("writes 64 MiB")
			}
			t.Parallel()
			c := process.StartT(t, process.Spec{Partitions: 2, Args: quick})
			s := c.Servers[0]
			conn := connect(t, s)
			ctx := within(t, 2*time.Minute)
			_, err := putUntil(ctx, conn, "/before", 10, 10)
			require.NoError(t, err)
			time.Sleep(afterwards)
			tap := attach(t, s, f.plan)
			ctx, cancel := context.WithCancel(ctx) // a request that comes too late waits for the server
			go func() {
				for s.Running() {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(200 * time.Millisecond)
				cancel()
			}()
			acknowledged, failed := 0, error(nil)
			for ctx.Err() == nil && failed == nil && (f.says != nil || acknowledged == 0) {
				var n int
				n, failed = putUntil(ctx, conn, fmt.Sprint("/during", acknowledged), 80, f.size)
				if acknowledged++; failed == nil {
					time.Sleep(afterwards)
					continue
				}
				defer func(round int) { requireKeys(t, connect(t, s), fmt.Sprint("/during", round), n) }(acknowledged - 1)
			}
			calls := tap.Detach()
			_, done := tap.Done()
			require.True(t, done, "%v", calls)
			if f.says == nil {
				require.NoError(t, failed)
				require.True(t, s.Running())
				require.NoError(t, s.Kill())
			} else {
				require.Error(t, failed)
				code, err := s.Wait(10 * time.Second)
				require.NoError(t, err)
				require.Equal(t, 1, code)
				_, last, ok := strings.Cut(s.LogTail(1<<20), "stoa can't go on")
				require.True(t, ok)
				for _, say := range f.says {
					require.Contains(t, last, say)
				}
				tried := 0
				for _, c := range calls {
					if c.Done {
						tried++
					}
				}
				require.Equal(t, 1, tried)
			}
			require.NoError(t, c.Restart(t.Context(), s))
			again := connect(t, s)
			requireKeys(t, again, "/before", 10)
			for round := range acknowledged - 1 {
				requireKeys(t, again, fmt.Sprint("/during", round), 80)
			}
		})
	}
}

func withTimeout(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// three is a cluster with the index of its leader.
func three(t *testing.T, args ...string) (*process.Cluster, int) { return threeAt(t, nil, args...) }

// threeAt is one at some places.
func threeAt(t *testing.T, at []process.Place, args ...string) (*process.Cluster, int) {
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: args, Places: at})
	lead := -1
	require.Eventually(t, func() bool {
		for i, s := range c.Servers {
			conn := connect(t, s)
			st, err := conn.Status(within(t, 5*time.Second), s.ClientURL)
			_ = conn.Close()
			if err == nil && st.Leader == st.Header.MemberId {
				lead = i
			}
		}
		return lead >= 0
	}, 20*time.Second, 50*time.Millisecond)
	return c, lead
}

// The others go on without a leader whose disk fails, and have what it had acknowledged; it
// comes back.
func TestTheOthersGoOnWithoutAFailingDisk(t *testing.T) {
	t.Parallel()
	for kind, path := range map[string]string{syscalls.Sync: logFiles, syscalls.Write: stateFile} {
		t.Run(kind+" of "+filepath.Base(path), func(t *testing.T) {
			c, lead := three(t, flushEvery)
			s, rest := c.Servers[lead], []*process.Server{c.Servers[(lead+1)%3], c.Servers[(lead+2)%3]}
			ctx := within(t, time.Minute)
			n, err := putUntil(ctx, connect(t, s), "/before", 20, 100)
			require.NoError(t, err)
			tap := attach(t, s, syscalls.Plan{Kinds: []string{kind}, Path: path, Errno: syscall.EIO})
			more, _ := putUntil(withTimeout(ctx, 5*time.Second), connect(t, s), "/during", 1<<20, 100)
			_, err = s.Wait(10 * time.Second)
			require.NoError(t, err)
			tap.Detach()
			others := connect(t, rest...)
			require.Eventually(t, func() bool {
				_, err := others.Put(withTimeout(ctx, time.Second), "/after", "v")
				return err == nil
			}, 20*time.Second, 50*time.Millisecond)
			requireKeys(t, others, "/before", n)
			requireKeys(t, others, "/during", more)
			require.NoError(t, c.Restart(t.Context(), s))
			requireKeys(t, connect(t, s), "/during", more)
		})
	}
}

// away brings a follower so far behind that it needs a snapshot, and stops it.
func away(t *testing.T, c *process.Cluster, lead int) *process.Server {
	s := c.Servers[(lead+1)%3]
	require.NoError(t, s.Kill())
	ctx, conn := within(t, time.Minute), connect(t, c.Servers[lead])
	for done := 0; done < 300; { // elections are short, and on a busy machine one comes in between
		n, err := putUntil(ctx, conn, fmt.Sprint("/away", done), 300-done, 2000)
		require.NoError(t, ctx.Err(), err)
		done += n
	}
	return s
}

// shortLog makes followers that lag need a snapshot soon.
var shortLog = append([]string{"--snapshot-count=100", "--snapshot-catchup-entries=20"}, quick...)

// caughtUp waits until a server has the leader's history.
func caughtUp(t *testing.T, s, leader *process.Server) {
	t.Helper()
	require.Eventually(t, has(t, s, leader), time.Minute, 50*time.Millisecond)
}

// has tells whether a server has the leader's history.
func has(t *testing.T, s, leader *process.Server) func() bool {
	own, other := connect(t, s), connect(t, leader)
	return func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		want, err := other.HashKV(ctx, leader.ClientURL, 0)
		if err != nil {
			return false
		}
		have, err := own.HashKV(ctx, s.ClientURL, want.HashRevision)
		return err == nil && have.Hash == want.Hash
	}
}

// A follower is killed at each call of the installation of a snapshot, and every other time loses its power, too. The
// file gets longer meanwhile, and the writes of it with it; all other calls are as many each time.
func TestAKillWhileASnapshotIsInstalled(t *testing.T) {
	t.Run("names and syncs", func(t *testing.T) {
		t.Parallel()
		kills := killWhileInstalling(t, []string{syscalls.Create, syscalls.Sync, syscalls.Rename, syscalls.Remove}, 1+*stride/3, 1000)
		require.Positive(t, kills)
	})
	t.Run("writes", func(t *testing.T) {
		t.Parallel()
		step := 1
		if *stride > 1 {
			step = 16
		}
		require.Positive(t, killWhileInstalling(t, []string{syscalls.Write}, step, 100))
	})
}

// killWhileInstalling kills at one of so many calls of some kinds, up to a number of them.
func killWhileInstalling(t *testing.T, kinds []string, step, most int) (kills int) {
	disks := map[string]*disk.Disk{}
	var at []process.Place
	for range 3 {
		place, d, ok := onDisk(t)
		at = append(at, place)
		if ok {
			disks[place.DataDir] = d
		}
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	c, lead := threeAt(t, at, shortLog...)
	for call := 0; call <= most; call += step {
		s := away(t, c, lead)
		require.NoError(t, s.Start())
		tap := attach(t, s, syscalls.Plan{Kinds: kinds, Path: "/member/snap", Skip: call, Kill: true})
		installed := has(t, s, c.Servers[lead])
		for began := time.Now(); s.Running() && (time.Since(began) < 3*time.Second || !installed()); {
			require.Less(t, time.Since(began), time.Minute)
			time.Sleep(10 * time.Millisecond)
		}
		calls := tap.Detach()
		killed, ok := tap.Done()
		if ok {
			kills++
			t.Logf("%d: killed before %v", call, killed)
			_, err := s.Wait(5 * time.Second)
			require.NoError(t, err)
			if d := disks[s.DataDir]; d != nil && kills%2 == 1 {
				require.NoError(t, d.Lose(rnd))
			}
			require.NoError(t, c.Restart(t.Context(), s))
		}
		caughtUp(t, s, c.Servers[lead])
		if !ok {
			t.Logf("%d calls", len(calls))
			break
		}
	}
	return kills
}

// A follower that has no room for a snapshot goes on without it, and takes one in later.
func TestNoRoomForASnapshot(t *testing.T) {
	t.Parallel()
	c, lead := three(t, shortLog...)
	s := away(t, c, lead)
	require.NoError(t, s.Start())
	tap := attach(t, s, syscalls.Plan{Kinds: []string{syscalls.Write}, Path: "db.received", Errno: syscall.ENOSPC})
	require.Eventually(t, func() bool { _, ok := tap.Done(); return ok }, 20*time.Second, 10*time.Millisecond)
	caughtUp(t, s, c.Servers[lead])
	tap.Detach()
	require.Contains(t, s.LogTail(1<<20), "no space left on device")
	require.NotContains(t, s.LogTail(1<<20), "can't go on")
}

// limited is the server under test with a limit of file descriptors.
func limited(t *testing.T, files int) process.Binary {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "stoa")
	text := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", files, bin.Path)
	require.NoError(t, os.WriteFile(script, []byte(text), 0o700))
	return process.Binary{Path: script, Stoa: bin.Stoa}
}

// hold opens connections to a server that nothing is sent over.
func hold(t *testing.T, s *process.Server, n int) (release func()) {
	var held []net.Conn
	for range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL, "http://"))
		require.NoError(t, err) // the kernel accepts it
		held = append(held, c)
	}
	return func() {
		for _, c := range held {
			c.Close()
		}
	}
}

// Clients can't take all of a server's file descriptors. Those that have to wait get in once
// there are fewer.
func TestClientsTakeAllFileDescriptors(t *testing.T) {
	t.Parallel()
	const files = 300
	c := process.StartT(t, process.Spec{Partitions: 2, Args: quick, Binary: limited(t, files)})
	s := c.Servers[0]
	conn := connect(t, s)
	_, err := putUntil(within(t, 10*time.Second), conn, "/before", 10, 100)
	require.NoError(t, err)
	release := hold(t, s, 2*files)
	const reserved = 150
	open := func() int {
		list, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.Pid()))
		require.NoError(t, err)
		return len(list)
	}
	require.Eventually(t, func() bool { return open() >= files-reserved }, 30*time.Second, 50*time.Millisecond)
	time.Sleep(500 * time.Millisecond)
	require.Less(t, open(), files-reserved+50) // and what it has open for itself
	_, err = putUntil(within(t, 10*time.Second), conn, "/during", 10, 100)
	require.NoError(t, err)
	release()
	_, err = connect(t, s).Put(within(t, 20*time.Second), "/after", "v")
	require.NoError(t, err)
}

// With none left at all, a server goes on with what it has open, and accepts clients again
// once there are some.
func TestNoFileDescriptors(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Partitions: 2, Args: quick})
	s := c.Servers[0]
	conn := connect(t, s)
	_, err := putUntil(within(t, 10*time.Second), conn, "/before", 10, 100)
	require.NoError(t, err)
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.Pid()))
	require.NoError(t, err)
	var limit unix.Rlimit
	require.NoError(t, unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, nil, &limit))
	limit.Cur = uint64(len(open) + 20)
	require.NoError(t, unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, &limit, nil))
	release := hold(t, s, 100)
	time.Sleep(time.Second)
	_, err = putUntil(within(t, 10*time.Second), conn, "/during", 10, 100)
	require.NoError(t, err)
	release()
	_, err = connect(t, s).Put(within(t, 20*time.Second), "/after", "v")
	require.NoError(t, err)
	require.Contains(t, s.LogTail(1<<20), "accepting a connection failed")
	require.NotContains(t, s.LogTail(1<<20), "can't go on")
}

// With syncs of 100 ms each write takes as long, and leader and term stay.
func TestASlowDisk(t *testing.T) {
	t.Parallel()
	c, lead := three(t)
	conn := connect(t, c.Servers[lead])
	before, err := conn.Status(within(t, 5*time.Second), c.Servers[lead].ClientURL)
	require.NoError(t, err)
	for _, s := range c.Servers {
		attach(t, s, syscalls.Plan{Kinds: []string{syscalls.Sync}, DelayMillis: 100, Always: true})
	}
	began := time.Now()
	n, err := putUntil(within(t, time.Minute), conn, "/slow", 30, 100)
	require.NoError(t, err)
	took := time.Since(began)
	t.Logf("%d writes took %v", n, took)
	require.Greater(t, took, 30*100*time.Millisecond)
	require.Less(t, took, 30*time.Second)
	after, err := conn.Status(within(t, 5*time.Second), c.Servers[lead].ClientURL)
	require.NoError(t, err)
	require.Equal(t, before.RaftTerm, after.RaftTerm)
}

// The disk of the state file hangs without an error, and that of the log works. Nothing waits for it, the operator is told, and the server can be
// stopped; what was acknowledged is in the log.
func TestAStateFileThatHangs(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Partitions: 2, Args: quick})
	s := c.Servers[0]
	conn := connect(t, s)
	tap := attach(t, s, syscalls.Plan{Kinds: []string{syscalls.Sync}, Path: stateFile, DelayMillis: 60_000, Always: true})
	says := func(text string) bool { return strings.Contains(s.LogTail(1<<20), text) }
	puts := 0
	for began := time.Now(); !says("the state file has not been written for too long"); puts++ {
		_, err := conn.Put(within(t, 10*time.Second), fmt.Sprintf("/hung/%d/%d", puts%5, puts), "v")
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond)
		require.Less(t, time.Since(began), 40*time.Second)
	}
	requireKeys(t, conn, "/hung", puts)
	require.Greater(t, metric(t, s, "stoa_flush_waiting_seconds"), 5.0)
	code, took, err := s.Stop()
	require.NoError(t, err)
	require.Zero(t, code)
	require.Less(t, took, 5*time.Second)
	tap.Detach()
	require.NoError(t, c.Restart(t.Context(), s))
	requireKeys(t, connect(t, s), "/hung", puts)
}

// metric is the value of one without labels.
func metric(t *testing.T, s *process.Server, name string) (v float64) {
	t.Helper()
	resp, err := http.Get(s.ClientURL + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_, value, found := strings.Cut(string(page), "\n"+name+" ")
	require.True(t, found)
	value, _, _ = strings.Cut(value, "\n")
	v, err = strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	return v
}
