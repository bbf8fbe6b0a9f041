package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// contender is one way to do some work on a cluster that stands.
type contender struct {
	name    string
	cluster *process.Cluster
	start   func() (*running, error)
}

// race measures all contenders in interleaved rounds and returns each one's median.
func (p *plan) race(what string, all []contender) ([]sample, error) {
	rounds, err := p.compete(what, all)
	if err != nil {
		return nil, err
	}
	var out []sample
	for _, r := range rounds {
		out = append(out, median(r))
	}
	return out, nil
}

// compete measures all contenders in interleaved rounds.
func (p *plan) compete(what string, all []contender) ([][]sample, error) {
	rounds := make([][]sample, len(all))
	for range p.rounds {
		for i, c := range all {
			s, err := p.profiled(c.cluster, what+" "+c.name, func() (sample, error) { return p.measure(c.cluster, c.start) })
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", what, c.name, err)
			}
			rounds[i] = append(rounds[i], s)
		}
	}
	fmt.Fprintln(os.Stderr, what)
	for i, c := range all {
		fmt.Fprintf(os.Stderr, "  %-24s %v\n", c.name, median(rounds[i]))
	}
	return rounds, nil
}

// arena is clusters of all servers that sessions are compared on, of one size. Those
// that are not measured idle.
type arena struct {
	p      *plan
	nodes  int
	keys   *keyspace
	etcd   *bench // unary calls
	stoa   *bench
	zk     *process.Cluster // nil if there is no java
	empty  *process.Cluster // one server, for any number of nodes
	leader string           // the address of stoa's leader
}

// what an arena may do without.
type arenaOf struct {
	nodes, parts, value int
	directories         int // 0: as many as usual
	etcd, zk, empty     bool
	args                []string // of stoa
}

func newArena(p *plan, of arenaOf) (a *arena, err error) {
	a = &arena{p: p, nodes: of.nodes}
	defer func() {
		if err != nil {
			a.close(true)
		}
	}()
	sized := *p
	sized.value = of.value
	own := subject{name: "stoa", bin: p.stoa, parts: of.parts, args: append([]string{quota}, of.args...)}
	if a.stoa, err = newBench(&sized, own, of.nodes); err != nil {
		return a, err
	}
	if of.etcd {
		bin, err := process.Choose("etcd")
		if err != nil {
			return a, err
		}
		if a.etcd, err = newBench(&sized, subject{name: "etcd", bin: bin}, of.nodes); err != nil {
			return a, err
		}
	}
	if a.keys, err = newKeyspace(cmp.Or(of.directories, directories), p.keys, of.value); err != nil {
		return a, err
	}
	if of.zk && p.zookeeper {
		if err = a.startZooKeeper(); err != nil {
			return a, err
		}
	}
	if of.empty {
		if err = a.startEmpty(); err != nil {
			return a, err
		}
	}
	a.leader, err = leaderOf(a.stoa.cluster)
	return a, err
}

func (a *arena) startZooKeeper() error {
	bin, err := process.Choose("zookeeper")
	if errors.Is(err, process.ErrNoJava) {
		fmt.Fprintln(os.Stderr, "ZooKeeper", err)
		return nil
	}
	if err != nil {
		return err
	}
	if a.zk, err = a.startCluster(process.Spec{Binary: bin, Nodes: a.nodes}); err != nil {
		return err
	}
	if err := fillZooKeeper(address(a.zk.Servers[0]), a.keys.keys, a.keys.value); err != nil {
		return err
	}
	return a.heatZooKeeper()
}

// heatZooKeeper works for a while before anything is measured: a JVM is slow until it
// has compiled what it runs.
func (a *arena) heatZooKeeper() error {
	heat := 4 * time.Second
	if a.p.quick {
		heat = time.Second
	}
	for _, op := range []string{"put", "get"} {
		r, err := a.onZooKeeper(work{op: op, sessions: 16, depth: 64}).start()
		if err != nil {
			return err
		}
		time.Sleep(heat)
		if err := r.stop(); err != nil {
			return fmt.Errorf("heating ZooKeeper: %w", err)
		}
	}
	return nil
}

func (a *arena) startEmpty() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting the empty server: %w", err)
	}
	a.empty, err = a.startCluster(process.Spec{Binary: process.Binary{Path: self}, Nodes: 1, Env: []string{echoEnv + "=1"}})
	return err
}

func (a *arena) startCluster(spec process.Spec) (*process.Cluster, error) {
	dir, err := process.TempDir("bench")
	if err != nil {
		return nil, err
	}
	spec.Dir = dir
	return process.Start(context.Background(), spec)
}

// close ends all servers, and removes what they left unless something failed.
func (a *arena) close(failed bool) {
	var all []*process.Cluster
	for _, b := range []*bench{a.etcd, a.stoa} {
		if b != nil {
			all = append(all, b.cluster)
		}
	}
	for _, c := range append(all, a.zk, a.empty) {
		if c == nil {
			continue
		}
		c.Close()
		if !failed {
			os.RemoveAll(c.Spec.Dir)
		}
	}
}

func address(s *process.Server) string {
	_, a, _ := strings.Cut(s.ClientURL, "://")
	return a
}

func leaderOf(c *process.Cluster) (string, error) {
	for range 50 {
		for _, s := range c.Servers {
			if leads(address(s)) {
				return address(s), nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "", errors.New("no server says that it leads")
}

// leads asks a server's metrics, which need no user.
func leads(address string) bool {
	n, err := metricOf("http://"+address, "etcd_server_is_leader")
	return err == nil && n == 1
}

// work is what sessions do.
type work struct {
	op       string
	sessions int
	depth    int
	conns    int                      // that they share at most, 0: maxConns; sessions of ZooKeeper share none
	pace     float64                  // all together, per second; 0: as fast as answers come
	at       []string                 // addresses; empty: the leader's
	pick     func(session int) picker // nil: any key
}

func (w work) String() string {
	return fmt.Sprintf("%s, %d session%s of depth %d", opText[w.op], w.sessions, plural(w.sessions), w.depth)
}

var opText = map[string]string{"put": "put", "get": "strict get", "causal": "causal get", "fast": "fast get"}

// overSessions does it on stoa. Sessions share at most maxConns connections.
func (a *arena) overSessions(w work) contender {
	at := w.at
	if len(at) == 0 {
		at = []string{a.leader}
	}
	return contender{name: stoaSessions, cluster: a.stoa.cluster, start: func() (*running, error) {
		return a.startSessions(w, sessionOpening{atLeast: a.keys.atLeast(w.op)}, at)
	}}
}

// onEmpty does it on the empty server, whose replies are as large as stoa's.
func (a *arena) onEmpty(w work) contender {
	o := sessionOpening{echo: true, replies: 6}
	if w.op != "put" {
		o.replies = 60 + len(a.keys.value)
	}
	return contender{name: "empty stream", cluster: a.empty, start: func() (*running, error) {
		return a.startSessions(w, o, []string{address(a.empty.Servers[0])})
	}}
}

func (a *arena) startSessions(w work, o sessionOpening, at []string) (*running, error) {
	conns := min(w.sessions, maxConns)
	if w.conns > 0 {
		conns = min(conns, w.conns)
	}
	pipes, err := openPipes(conns, func(i int) (pipe, error) {
		mine := o
		mine.address = at[i%len(at)]
		mine.sessions = w.sessions / conns
		if i < w.sessions%conns {
			mine.sessions++
		}
		mine.source = a.source(w, a.keys.stoa[w.op], i, conns)
		return openSessions(mine)
	})
	if err != nil {
		return nil, err
	}
	return startPipes(pipes, w.depth, w.pace), nil
}

// source gives each session of connection i of conns its next request.
func (a *arena) source(w work, requests [][]byte, i, conns int) func(int) []byte {
	pick := w.pick
	if pick == nil {
		pick = func(session int) picker { return a.keys.anyKey(session) }
	}
	var pickers []picker
	return func(s int) []byte {
		for len(pickers) <= s {
			pickers = append(pickers, pick(i+len(pickers)*conns))
		}
		return requests[pickers[s]()]
	}
}

// onZooKeeper does it on ZooKeeper, whose reads are all local; each session has a
// connection of its own, and they are spread over the servers.
func (a *arena) onZooKeeper(w work) contender {
	return contender{name: "ZooKeeper", cluster: a.zk, start: func() (*running, error) {
		pipes, err := openPipes(w.sessions, func(i int) (pipe, error) {
			source := a.source(w, a.keys.zk[w.op], i, w.sessions)
			return openZooKeeper(address(a.zk.Servers[i%len(a.zk.Servers)]), func() []byte { return source(0) }, a.keys.atLeast(w.op))
		})
		if err != nil {
			return nil, err
		}
		return startPipes(pipes, w.depth, w.pace), nil
	}}
}

// byUnary does it by calls one by one, each client waiting for its answer.
func byUnary(b *bench, name, op string, clients int) contender {
	return contender{name: fmt.Sprintf("%s, %d unary", name, clients), cluster: b.cluster,
		start: func() (*running, error) { return b.load.start(op, clients), nil }}
}
