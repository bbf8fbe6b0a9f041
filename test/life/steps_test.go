package life

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// steps are what an operator may do, by name.
var steps = map[string]func(*life){
	"restart":      func(l *life) { l.rolling(func(s *process.Server) error { _, _, err := s.Stop(); return err }) },
	"kill":         func(l *life) { l.rolling((*process.Server).Kill) },
	"kill-all":     (*life).killAll,
	"pause-leader": (*life).pauseLeader,
	"move-leader":  (*life).moveLeader,
	"move-member":  (*life).moveMember,
	"replace":      (*life).replace,
	"readdress":    (*life).readdress,
	"away":         (*life).away,
	"grow":         func(l *life) { l.resize("grow") },
	"shrink":       func(l *life) { l.resize("shrink") },
	"pin":          (*life).pin,
	"balance":      func(l *life) { l.ctl("partition balance --dry-run"); l.ctl("partition balance") },
	"defrag":       (*life).defrag,
	"compact":      (*life).compact,
	"backup":       (*life).backup,
	"restore":      (*life).restore,
	"downgrade":    (*life).downgrade,
	"certificates": (*life).certificates,
	"password":     (*life).changePassword,
	"rights":       (*life).rights,
	"users-off":    (*life).usersOff,
	"nospace":      (*life).noSpace,
	"extension":    (*life).extension,
	"force":        (*life).force,
	"sidecar":      (*life).restartSidecar,
	"read":         (*life).readEverything,
}

func (l *life) start(s *process.Server) {
	l.t.Helper()
	require.NoError(l.t, l.c.Restart(l.ctx, s))
}

// rolling ends and starts one member after the other, and waits until all are well.
func (l *life) rolling(end func(*process.Server) error) {
	for _, i := range l.rnd.Perm(len(l.c.Servers)) {
		s := l.c.Servers[i]
		require.NoError(l.t, end(s))
		time.Sleep(time.Duration(l.rnd.IntN(1500)) * time.Millisecond)
		l.start(s)
		l.well()
	}
}

// well waits until stoactl says that all members are.
func (l *life) well() {
	l.t.Helper()
	var out string
	ok := eventually(time.Minute, func() (ok bool) {
		var err error
		out, err = l.try("stoactl", "endpoint health --cluster")
		return err == nil
	})
	require.True(l.t, ok, "%s", out)
}

func (l *life) killAll() {
	for _, s := range l.c.Servers {
		require.NoError(l.t, s.Kill())
	}
	for _, s := range l.c.Servers {
		require.NoError(l.t, s.Start())
	}
	for _, s := range l.c.Servers {
		l.ready(s)
	}
}

func (l *life) ready(s *process.Server) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, 90*time.Second)
	defer cancel()
	require.NoError(l.t, s.WaitReady(ctx))
}

func (l *life) pauseLeader() {
	s := l.leader()
	require.NoError(l.t, s.Pause())
	time.Sleep(time.Duration(1+l.rnd.IntN(6)) * time.Second)
	require.NoError(l.t, s.Resume())
}

func (l *life) moveLeader() {
	for range 3 {
		from := l.leader()
		to := l.another(from)
		program := []string{"stoactl", "etcdctl"}[l.rnd.IntN(2)]
		out, err := l.at(program, []string{from.ClientURL}, "move-leader "+l.id(to))
		require.NoError(l.t, err, "%s", out)
		require.Equal(l.t, to.Name, l.leader().Name)
	}
}

func (l *life) restartSidecar() {
	if l.rnd.IntN(2) == 0 {
		require.NoError(l.t, l.sidecar.Signal(syscall.SIGKILL))
		_, err := l.sidecar.Wait(10 * time.Second)
		require.NoError(l.t, err)
	}
	l.startSidecar()
}

// readEverything asks for all that an operator can look at.
func (l *life) readEverything() {
	for _, command := range []string{"endpoint status --cluster -w table", "endpoint hashkv --cluster", "endpoint health --cluster",
		"member list -w table", "alarm list", "lease list", "user list", "role list"} {
		l.either(command)
	}
	for _, command := range []string{"partition list -w json", "partition list -w table", "top -n 1", "quota list", "extension list"} {
		out, err := l.try("stoactl", command)
		if err != nil {
			l.say("  %s: %v %s", command, err, out)
		}
	}
}

// status asks one member.
func (l *life) status(s *process.Server) (st *clientv3.StatusResponse) {
	l.t.Helper()
	l.root([]string{s.ClientURL}, func(ctx context.Context, cli *clientv3.Client) {
		ok := eventually(30*time.Second, func() (ok bool) {
			var err error
			st, err = cli.Status(ctx, s.ClientURL)
			return err == nil && st.Leader != 0
		})
		require.True(l.t, ok, "%s: %v", s.Name, st)
	})
	return st
}

func (l *life) id(s *process.Server) string { return fmt.Sprintf("%x", l.status(s).Header.MemberId) }

func (l *life) leader() *process.Server {
	l.t.Helper()
	for range 100 {
		for _, s := range l.c.Servers {
			if st := l.status(s); st.Leader == st.Header.MemberId {
				return s
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	require.FailNow(l.t, "no leader")
	return nil
}

func (l *life) another(than *process.Server) *process.Server {
	for {
		if s := l.any(); s != than {
			return s
		}
	}
}

func (l *life) any() *process.Server { return l.c.Servers[l.rnd.IntN(len(l.c.Servers))] }
