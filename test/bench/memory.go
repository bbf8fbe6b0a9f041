package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// idleTTL is longer than the measurement: idle sessions say nothing meanwhile.
const idleTTL = 30 * time.Minute

// measureMemory opens many sessions, and watchers on them, and measures the
// growth of the server's memory.
func measureMemory(p *plan) (s section, err error) {
	a, err := newArena(p, arenaOf{nodes: 1, value: p.value})
	if err != nil {
		return s, err
	}
	defer func() { a.close(err != nil) }()
	idle, watchers := p.idle, p.watchers
	s.rows = [][]string{{"state", "number", "took", "resident MiB", "heap and stacks MiB", "resident each", "heap and stacks each"}}
	before, err := a.memory()
	if err != nil {
		return s, err
	}
	s.rows = append(s.rows, before.row("before", 0, 0, footprint{}))

	began := time.Now()
	pipes, err := a.openIdle(idle)
	if err != nil {
		return s, err
	}
	defer func() {
		for _, p := range pipes {
			p.link.close()
		}
	}()
	opening := time.Since(began)
	opened, err := a.memory()
	if err != nil {
		return s, err
	}
	s.rows = append(s.rows, opened.row("idle sessions", idle, opening, before))

	began = time.Now()
	if err := watch(pipes, watchers, p.keys); err != nil {
		return s, err
	}
	watching := time.Since(began)
	watched, err := a.memory()
	if err != nil {
		return s, err
	}
	s.rows = append(s.rows, watched.row("idle watchers", watchers, watching, opened))

	events, took, err := a.wake(pipes, watchers)
	if err != nil {
		return s, err
	}
	s.notes = append(s.notes, fmt.Sprintf("Then every key was put once: %d events, one for each watcher, had arrived after %v.", events, round(took)))
	s.text = fmt.Sprintf("%d sessions on %d connections to one server, then %d watchers of a key each, evenly over the sessions. Memory is measured once it has stopped "+
		"shrinking; heap and stacks are as reported by Go's runtime.", idle, min(idle, maxConns), watchers)
	return s, nil
}

// openIdle opens sessions with a long life.
func (a *arena) openIdle(sessions int) ([]*sessionPipe, error) {
	conns := min(sessions, maxConns)
	pipes, err := openPipes(conns, func(i int) (pipe, error) {
		n := sessions / conns
		if i < sessions%conns {
			n++
		}
		return openSessions(sessionOpening{address: a.leader, sessions: n, ttl: idleTTL})
	})
	var out []*sessionPipe
	for _, p := range pipes {
		out = append(out, p.(*sessionPipe))
	}
	return out, err
}

// watch spreads watchers over all sessions, and these over the keys. Those of one
// session are asked for in one message.
func watch(pipes []*sessionPipe, watchers, keys int) error {
	sessions := 0
	for _, p := range pipes {
		sessions += len(p.list)
	}
	errs := make([]error, len(pipes))
	each(len(pipes), func(i int) { errs[i] = pipes[i].watch(i, len(pipes), sessions, watchers, keys) })
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("opening watchers: %w", err)
		}
	}
	return nil
}

func (p *sessionPipe) watch(at, pipes, sessions, watchers, keys int) error {
	asked, answered := 0, 0
	for i := range p.list {
		n := watchers / sessions
		first := (i*pipes + at) * n
		next := first
		p.source = func(int) []byte {
			next++
			// Marshalling so simple a message doesn't fail.
			body, _ := proto.Marshal(&pb.WatchCreateRequest{Key: []byte(keyName((next - 1) % keys))})
			return stoaRequest(stoapb.Kind_WATCH, stoapb.Level_CAUSAL, body)
		}
		if err := p.ask(i, n); err != nil {
			return err
		}
		asked += n
	}
	for answered < asked {
		if err := p.flushIdle(); err != nil {
			return err
		}
		if err := p.receive(func(_, n int) { answered += n }); err != nil {
			return err
		}
	}
	return nil
}

// wake puts every key once and waits until every watcher has had its event.
func (a *arena) wake(pipes []*sessionPipe, watchers int) (int64, time.Duration, error) {
	began := time.Now()
	if err := a.stoa.load.fill(); err != nil {
		return 0, 0, err
	}
	deadline := time.Now().Add(time.Minute)
	events, errs := make([]int64, len(pipes)), make([]error, len(pipes))
	each(len(pipes), func(i int) {
		p, want := pipes[i], int64(len(pipes[i].list)*(watchers/a.sessions(pipes)))
		for p.events < want && errs[i] == nil {
			ready, err := p.await(deadline)
			switch {
			case err != nil:
				errs[i] = err
			case !ready:
				errs[i] = fmt.Errorf("%d events of %d came", p.events, want)
			default:
				errs[i] = p.receive(func(int, int) {})
			}
		}
		events[i] = p.events
	})
	var sum int64
	for i, n := range events {
		sum += n
		if errs[i] != nil {
			return sum, 0, fmt.Errorf("waiting for events: %w", errs[i])
		}
	}
	return sum, time.Since(began), nil
}

func (a *arena) sessions(pipes []*sessionPipe) (n int) {
	for _, p := range pipes {
		n += len(p.list)
	}
	return n
}

// footprint is a server's memory.
type footprint struct{ resident, used int64 }

func (f footprint) row(state string, n int, took time.Duration, before footprint) []string {
	row := []string{state, "", "", fmt.Sprint(f.resident >> 20), fmt.Sprint(f.used >> 20), "", ""}
	if n > 0 {
		row[1], row[2] = fmt.Sprint(n), round(took).String()
		row[5], row[6] = kib(float64(f.resident-before.resident)/float64(n)), kib(float64(f.used-before.used)/float64(n))
	}
	fmt.Fprintln(os.Stderr, strings.Join(row, "  "))
	return row
}

func kib(bytes float64) string { return fmt.Sprintf("%.2f KiB", bytes/1024) }

// memory waits until the server's heap has been collected, and is as small as it gets
// in some seconds.
func (a *arena) memory() (least footprint, err error) {
	attempts := 6
	if a.p.quick {
		attempts = 2
	}
	for range attempts {
		time.Sleep(time.Second)
		var f footprint
		if f.resident, err = a.stoa.cluster.Servers[0].Resident(); err != nil {
			return f, err
		}
		if f.used, err = used(a.stoa.cluster.Servers[0].ClientURL); err != nil {
			return f, err
		}
		if least.used == 0 || f.used < least.used {
			least.used = f.used
		}
		if least.resident == 0 || f.resident < least.resident {
			least.resident = f.resident
		}
	}
	return least, nil
}

// used is what Go's runtime says of its heap and stacks.
func used(url string) (int64, error) {
	n, err := metricOf(url, "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes")
	return int64(n), err
}
