package life

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// moveMember is "Moving to other machines", of the leader half of the time.
func (l *life) moveMember() {
	old := l.any()
	if l.rnd.IntN(2) == 0 {
		old = l.leader()
	}
	endpoints := l.c.Endpoints()
	id := l.id(old)
	s := l.add("--learner")
	l.until(endpoints, "member promote "+l.memberID(endpoints, s.Name))
	l.until(endpoints, "member remove "+id)
	code, err := old.Wait(20 * time.Second)
	require.NoError(l.t, err)
	require.Zero(l.t, code, "%s", old.LogTail(1500))
	l.logged(old)
	l.remove(old)
	require.NoError(l.t, os.RemoveAll(old.DataDir))
	l.load.renew()
	l.startSidecar()
}

// add has a new server become a member.
func (l *life) add(more ...string) *process.Server {
	endpoints := l.c.Endpoints()
	s := l.join()
	l.until(endpoints, strings.Join(append([]string{"member add", s.Name, "--peer-urls=" + s.PeerURL}, more...), " "))
	require.NoError(l.t, s.Start())
	l.ready(s)
	return s
}

// replace is "Replacing a member", whose disk is lost.
func (l *life) replace() {
	lost := l.any()
	id := l.id(lost)
	require.NoError(l.t, lost.Kill())
	require.NoError(l.t, os.RemoveAll(lost.DataDir))
	l.remove(lost)
	l.until(l.c.Endpoints(), "member remove "+id)
	l.add()
	l.load.renew()
	l.startSidecar()
}

// away has one member be down while others are changed.
func (l *life) away() {
	s := l.any()
	require.NoError(l.t, s.Kill())
	l.remove(s)
	meanwhile := []func(*life){(*life).compact, (*life).defrag, (*life).pin, (*life).changePassword, (*life).rights, (*life).moveLeader,
		(*life).backup, func(l *life) { l.resize("grow") }, func(l *life) { l.resize("shrink") }}
	for range 3 {
		meanwhile[l.rnd.IntN(len(meanwhile))](l)
	}
	l.load.mu.Lock()
	l.c.Servers = append(l.c.Servers, s)
	l.load.mu.Unlock()
	l.start(s)
	l.load.renew()
	l.startSidecar()
}

// readdress is "Another address of a member".
func (l *life) readdress() {
	old := l.any()
	id := l.id(old)
	_, _, err := old.Stop()
	require.NoError(l.t, err)
	l.logged(old)
	l.remove(old)
	at := l.join()
	l.until(l.c.Endpoints()[:2], "member update "+id+" --peer-urls="+at.PeerURL)
	require.NoError(l.t, os.Rename(old.DataDir, at.DataDir))
	moved := at.Without("--initial-cluster", "--name").With("--name=" + old.Name)
	moved.Name, moved.LogFile = old.Name, at.LogFile
	l.load.mu.Lock()
	l.c.Servers[len(l.c.Servers)-1] = moved
	l.load.mu.Unlock()
	l.t.Cleanup(func() { _ = moved.Kill() })
	l.start(moved)
	l.load.renew()
	l.startSidecar()
	require.Contains(l.t, l.either("member list"), moved.ClientURL)
}

// force is "Lost majority": one survives, and others are added.
func (l *life) force() {
	survivor := l.any()
	var forced *process.Server
	l.load.still(func() { forced = l.forceOne(survivor) })
	time.Sleep(time.Second)
	_, _, err := forced.Stop()
	require.NoError(l.t, err)
	l.start(survivor)
	for range 2 {
		l.add()
	}
	l.load.renew()
	l.startSidecar()
}

// forceOne makes one member the only one, after all have what was written.
func (l *life) forceOne(survivor *process.Server) (forced *process.Server) {
	l.level()
	for _, s := range l.c.Servers {
		require.NoError(l.t, s.Kill())
		if s != survivor {
			require.NoError(l.t, os.RemoveAll(s.DataDir))
		}
	}
	for _, s := range append([]*process.Server(nil), l.c.Servers...) {
		if s != survivor {
			l.logged(s)
			l.remove(s)
		}
	}
	forced = survivor.With("--force-new-cluster")
	forced.LogFile = survivor.LogFile
	require.NoError(l.t, forced.Start())
	l.t.Cleanup(func() { _ = forced.Kill() })
	l.ready(forced)
	require.Equal(l.t, 1, strings.Count(l.either("member list"), "\n"))
	l.load.renew()
	return forced
}

// level waits until all members have all of the log.
func (l *life) level() {
	l.t.Helper()
	rev := l.sentinel()
	for _, s := range l.c.Servers {
		require.True(l.t, eventually(30*time.Second, func() bool { return l.status(s).Header.Revision >= rev }))
	}
	time.Sleep(500 * time.Millisecond)
}

// remove forgets a server that isn't a member any more.
func (l *life) remove(gone *process.Server) {
	l.load.mu.Lock()
	defer l.load.mu.Unlock()
	var left []*process.Server
	for _, s := range l.c.Servers {
		if s != gone {
			left = append(left, s)
		}
	}
	l.c.Servers = left
}

func (l *life) join() *process.Server {
	l.load.mu.Lock()
	defer l.load.mu.Unlock()
	l.names++
	s, err := l.c.Joining(fmt.Sprintf("s%d", l.names), process.Place{Host: "127.0.0.1"})
	require.NoError(l.t, err)
	return s
}

func (l *life) memberID(endpoints []string, name string) string {
	l.t.Helper()
	out, err := l.at("etcdctl", endpoints, "member list")
	require.NoError(l.t, err, "%s", out)
	for line := range strings.Lines(out) {
		if f := strings.Split(line, ", "); len(f) > 2 && (f[2] == name) {
			return f[0]
		}
	}
	require.FailNow(l.t, "no member", "%s: %s", name, out)
	return ""
}
