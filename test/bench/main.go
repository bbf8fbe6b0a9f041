// Bench measures servers side by side: real etcd, ZooKeeper and stoa, in one run, on
// one machine, under one load.
//
//	go run ./test/bench                       everything (half an hour)
//	go run ./test/bench -rounds 3 -length 3s -clients 1,10,100,1000 -sessions 1,16,100 -depths 1,16,64,256
//	                                          the long form (two hours)
//	go run ./test/bench -quick                short rounds of few cells of the half of it, for a look
//	go run ./test/bench -what unary -servers etcd,stoa:1,stoa:2 -clients 1000 -ops put
//	go run ./test/bench -what sessions,switches -nodes 3
//	go run ./test/bench -write docs/benchmarks.md -img docs/img
//	go run ./test/bench -what kube -write docs/benchmarks-kube.md -img docs/img
//
// What can be measured:
//
//	unary      etcd's API, call by call, beside etcd: 1, 100 and 1,000 clients
//	sessions   puts and gets over sessions of several depths, beside etcd, ZooKeeper and
//	           the empty stream, which is what gRPC and the machine allow
//	switches   requests per change of partition, and the levels of reads: figure 9 of
//	           Distler et al., AGORA
//	latency    latency against throughput: figure 8 of the same
//	isolation  one client's reads while 100 others write, on its cluster and on another:
//	           as section 4.1 of Lev-Ari et al., Modular Composition of Coordination Services
//	memory     of an idle session and an idle watcher: 10,000 and 100,000 on one server
//	scale      a million keys: memory, restart, snapshot, large ranges, compaction
//	many       30,000 leases, 100,000 watchers, 10,000 connections, values of 1 MiB
//	stalls     puts while something large goes on: compaction, a snapshot, a move of slots
//	users      unary calls with users, beside stoa without and etcd with them
//	logins     puts while 500 clients log in, and while users change
//	tenants    gets of one tenant beside 12 attackers of another, without a quota and with one
//	tracing    unary calls with tracing, of which none is sampled, and one in a hundred
//	failover   the leader is killed: how long no write is acknowledged
//	partitions what two partitions cost on one core, and a transaction over both
//	cores      the engine without gRPC on one core and two, beside two engines that share
//	           nothing, and a model of more
//	shared     the parts that all partitions share, alone; the stages of a put
//	balance    all load jumps onto one partition: figure 10 of AGORA; is uniform; jumps all the time
//	sidecars   unary calls through ten sidecars, beside calls without them and etcd's grpc-proxy
//	coalesced  10,000 watches of one prefix through ten sidecars, beside ten
//	extensions what clients that use none pay for those that are registered
//	kube       what kube-apiserver's storage layer sends, and for how many nodes; a report
//	           of its own, measured only when it is named
//
// Of -servers the first is the baseline of unary; "stoa:2" is stoa with two partitions,
// "stoa+auth" with users, "stoa+sidecars" with clients that connect to ten sidecars, "stoa+caches" to sidecars that keep
// the keys, "etcd+proxies" to ten of etcd's grpc-proxy.
// Stalls judge the second.
// The rounds of a cell are interleaved (etcd, stoa, etcd, stoa, …), so that what drifts
// on the machine hits both. How many there are is a matter of the part, unless -rounds
// says it: one where a round takes minutes, three where goals hang on small differences.
// Each figure is the median of its rounds; the CPU time is
// that of all servers of a cluster together, from /proc, per operation done.
//
// The load generator runs beside the servers, as in most published figures, and so
// takes part of the machine. It is kept cheap, and alike for all: frames written by
// hand (wire.go for unary calls, link.go and session.go for sessions, zookeeper.go),
// with requests encoded beforehand and answers that are looked at, not decoded. What
// it used itself is in the report.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/sheet"
)

// plan is what a run measures.
type plan struct {
	what       []string
	subjects   []subject      // of unary and stalls
	stoa       process.Binary // of the rest
	zookeeper  bool
	nodes      []int
	clients    []int
	ops        []string
	sessions   []int
	depths     []int
	parts      int // for switches and balance
	spread     bool
	idle       int // sessions of memory
	watchers   int
	keysScale  int // of scale
	leases     int // of many
	conns      int
	keysStalls int
	kubeNodes  int           // of kube
	searches   int           // of kube, for the most nodes
	pace       float64       // puts per second of stalls
	stalls     string        // of stalls, balance and shared: only what has this in its name
	uniform    time.Duration // of balance
	jumping    time.Duration
	value      int
	keys       int
	rounds     int
	length     time.Duration
	warmup     time.Duration
	quick      bool
	write, img string
	profiles   string // where profiles go, if anywhere
}

// subject is one of the servers that are compared.
type subject struct {
	name  string
	bin   process.Binary
	parts int // 0: the server's default
	auth  bool
	front string // between clients and servers: see fronts
	args  []string
	env   []string
}

// measurement is one part of a run, and a section of the report.
type measurement struct {
	name, title string
	rounds      int // by default: as many as its spread needs
	measure     func(*plan) (section, error)
}

// measurements are all parts, in their order.
var measurements = []measurement{
	{"unary", "Unary calls", 5, measureUnary},
	{"sessions", "Sessions", 5, measureSessions},
	{"switches", "Changes of partition, and levels", 2, measureSwitches},
	{"latency", "Latency against throughput", 2, measureLatency},
	{"isolation", "Isolation", 2, measureIsolation},
	{"memory", "Memory of sessions and watchers", 1, measureMemory},
	{"scale", "A million keys", 1, measureScale},
	{"many", "Many leases, watchers, connections; large values", 2, measureMany},
	{"stalls", "Puts beside large operations", 4, measureStalls},
	{"users", "Users and roles", 9, measureUsers},
	{"logins", "Puts beside logins and changes of users", 3, measureLogins},
	{"tenants", "A tenant beside attackers", 5, measureTenants},
	{"tracing", "Tracing", 5, measureTracing},
	{"failover", "Failover", 2, measureFailover},
	{"partitions", "Partitions", 3, measurePartitions},
	{"cores", "Cores", 2, measureCores},
	{"shared", "Shared parts", 3, measureShared},
	{"balance", "Balance", 2, measureBalance},
	{"sidecars", "Calls through sidecars", 3, measureSidecars},
	{"coalesced", "Watches through sidecars", 1, measureCoalesced},
	{"extensions", "Clients beside extensions", 3, measureExtensions},
	{kubeName, kubeTitle, 3, measureKube},
}

// kubeName is the part that has a report of its own.
const kubeName, kubeTitle = "kube", "Kubernetes' load"

func names() (all []string) {
	for _, m := range measurements {
		all = append(all, m.name)
	}
	return all
}

// namesOfReport are the parts of the report that isn't of one part alone.
func namesOfReport() []string {
	return slices.DeleteFunc(names(), func(name string) bool { return name == kubeName })
}

func main() {
	var err error
	if os.Getenv(echoEnv) != "" {
		err = serveEmpty(os.Args[1:])
	} else {
		var p *plan
		if p, err = parse(os.Args[1:]); err == nil {
			err = cleanly(func() error { return run(p) })
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*plan, error) {
	f := flag.NewFlagSet("bench", flag.ExitOnError)
	p := &plan{}
	f.BoolVar(&p.quick, "quick", false, "one short round of each cell, and fewer cells")
	lists := map[string]*string{
		"what":     f.String("what", strings.Join(namesOfReport(), ","), "what to measure"),
		"servers":  f.String("servers", "etcd,stoa", "what unary and stalls compare, the baseline first: etcd, stoa, stoa:PARTITIONS or the path of a binary; each with "+authSuffix+": with users; each with "+sidecarsSuffix+", "+cachesSuffix+" or "+proxiesSuffix+" behind that: through sidecars, those that keep the keys, or etcd's grpc-proxy"),
		"nodes":    f.String("nodes", "1,3", "servers to a cluster, for unary and partitions; the rest has the most of these"),
		"clients":  f.String("clients", "1,100,1000", "clients that work at once, for unary"),
		"ops":      f.String("ops", "put,get,sget", "put, get (linearizable), sget (serializable), for unary"),
		"sessions": f.String("sessions", "100", "sessions that work at once"),
		"depths":   f.String("depths", "1,64,256", "requests of a session that are under way at once"),
	}
	stoa := f.String("stoa", "stoa", "stoa's binary (default: built from this checkout)")
	f.BoolVar(&p.zookeeper, "zookeeper", true, "measure ZooKeeper, if there is java")
	f.BoolVar(&p.spread, "spread", false, "spread sessions over all servers; otherwise they are with the leader, where stoa's own client goes")
	f.IntVar(&p.parts, "parts", 4, "partitions, for switches and balance")
	f.IntVar(&p.idle, "idle", 10_000, "sessions, for memory")
	f.IntVar(&p.watchers, "watchers", 100_000, "watchers, for memory and many")
	f.IntVar(&p.keysScale, "keys-scale", 1_000_000, "number of keys, for scale")
	f.IntVar(&p.leases, "leases", 100_000, "leases, for many")
	f.IntVar(&p.conns, "conns", 10_000, "connections, for many")
	f.IntVar(&p.kubeNodes, "kube-nodes", 5000, "nodes at which servers are compared, for kube")
	f.IntVar(&p.searches, "searches", 2, "how often the most nodes are looked for, for kube")
	f.IntVar(&p.keysStalls, "keys-stalls", 100_000, "number of keys, for stalls")
	f.StringVar(&p.stalls, "beside", "", "only what has this in its name, for stalls, balance and shared")
	f.DurationVar(&p.uniform, "uniform", time.Minute, "how long the load is uniform, for balance")
	f.DurationVar(&p.jumping, "jumping", 3*time.Minute, "how long the hot set jumps, for balance")
	f.Float64Var(&p.pace, "pace", 1000, "puts per second, for stalls")
	f.IntVar(&p.value, "value", 256, "bytes of a value")
	f.IntVar(&p.keys, "keys", 10_000, "number of keys")
	f.IntVar(&p.rounds, "rounds", 0, "rounds of each cell (default: 1 to 3, as the part's spread needs)")
	f.DurationVar(&p.length, "length", 1500*time.Millisecond, "time that a round is measured")
	f.DurationVar(&p.warmup, "warmup", 500*time.Millisecond, "time that a round runs before")
	f.StringVar(&p.write, "write", "", "update the report, a Markdown file")
	f.StringVar(&p.img, "img", "", "draw the plots, as SVG, into this directory")
	f.StringVar(&p.profiles, "profile", "", "keep profiles of stoa in this directory, for unary, sessions, scale and stalls; they cost something")
	f.Parse(args)

	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if p.quick {
		p.shorten(given, lists)
	}
	var err error
	if p.stoa, err = process.Choose(*stoa); err != nil {
		return nil, err
	}
	return p, p.read(lists)
}

// shorten is -quick: what was given stays.
func (p *plan) shorten(given map[string]bool, lists map[string]*string) {
	for name, v := range map[string]string{"what": "unary,sessions,scale,stalls,failover,partitions", "clients": "1,1000", "ops": "put,get", "depths": "1,64"} {
		if !given[name] {
			*lists[name] = v
		}
	}
	for name, short := range map[string]struct {
		to *int
		n  int
	}{"rounds": {&p.rounds, 1}, "keys-scale": {&p.keysScale, 50_000}, "leases": {&p.leases, 5000}, "conns": {&p.conns, 500},
		"keys-stalls": {&p.keysStalls, 20_000}, "kube-nodes": {&p.kubeNodes, 1000}, "watchers": {&p.watchers, 10_000}, "idle": {&p.idle, 1000}} {
		if !given[name] {
			*short.to = short.n
		}
	}
	if !given["length"] {
		p.length = 500 * time.Millisecond
	}
	if !given["warmup"] {
		p.warmup = 300 * time.Millisecond
	}
}

// read reads the flags that are lists.
func (p *plan) read(lists map[string]*string) error {
	for name, to := range map[string]*[]int{"nodes": &p.nodes, "clients": &p.clients, "sessions": &p.sessions, "depths": &p.depths} {
		var err error
		if *to, err = sheet.Numbers(*lists[name], 1); err != nil {
			return fmt.Errorf("-%s: %w", name, err)
		}
	}
	p.what = strings.Split(*lists["what"], ",")
	for _, w := range p.what {
		if !slices.Contains(names(), w) {
			return fmt.Errorf("-what: %q is none of %s", w, strings.Join(names(), ", "))
		}
		if w == kubeName && len(p.what) > 1 {
			return errors.New("-what: kube has a report of its own, and is measured by itself")
		}
	}
	p.ops = strings.Split(*lists["ops"], ",")
	for _, op := range p.ops {
		if !slices.Contains([]string{"put", "get", "sget"}, op) {
			return fmt.Errorf("-ops: %q is none of put, get, sget", op)
		}
	}
	for _, s := range strings.Split(*lists["servers"], ",") {
		sub, err := p.parseSubject(s)
		if err != nil {
			return fmt.Errorf("-servers: %w", err)
		}
		p.subjects = append(p.subjects, sub)
	}
	return nil
}

func (p *plan) parseSubject(s string) (subject, error) {
	sub := subject{name: s}
	s, sub.front = cutFront(s)
	s, sub.auth = strings.CutSuffix(s, authSuffix)
	path, parts, ok := strings.Cut(s, ":")
	var err error
	if ok {
		if sub.parts, err = strconv.Atoi(parts); err != nil {
			return sub, fmt.Errorf("the partitions of %q: %w", s, err)
		}
		sub.name = fmt.Sprintf("%s P=%d", path, sub.parts)
		if sub.auth {
			sub.name += authSuffix
		}
		sub.name += sub.front
	}
	if path == "stoa" {
		sub.bin = p.stoa
		return sub, nil
	}
	sub.bin, err = process.Choose(path)
	return sub, err
}

// cleanly does something with a temporary directory of its own, of which nothing stays
// if it succeeds or is interrupted; servers die with this program anyhow.
func cleanly(do func() error) error {
	dir, err := process.TempDir("bench")
	if err != nil {
		return err
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return fmt.Errorf("making a directory for the servers: %w", err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		os.RemoveAll(dir)
		os.Exit(1)
	}()
	if err := do(); err != nil {
		return fmt.Errorf("%w (data and logs of the servers: %s)", err, dir)
	}
	return os.RemoveAll(dir)
}

// sized is the plan for one part.
func (p *plan) sized(m measurement) *plan {
	own := *p
	if own.rounds == 0 {
		own.rounds = m.rounds
	}
	return &own
}

func run(p *plan) error {
	measured := fmt.Sprintf("Measured on %s, on %s.", time.Now().Format("2006-01-02"), machine())
	var sections []section
	var failed error
	for _, m := range measurements {
		if !slices.Contains(p.what, m.name) {
			continue
		}
		began := time.Now()
		s, err := m.measure(p.sized(m))
		fmt.Fprintf(os.Stderr, "%s took %v\n\n", m.name, time.Since(began).Round(time.Second))
		if err != nil {
			failed = fmt.Errorf("%s: %w", m.name, err)
			break // what was measured before is shown all the same
		}
		s.title = m.title
		s.text += "\n\n" + measured
		sections = append(sections, s)
	}
	for _, s := range sections {
		s.print(os.Stdout)
	}
	if p.img != "" {
		failed = errors.Join(failed, sheet.Draw(p.img, charts(sections)))
	}
	if p.write != "" {
		failed = errors.Join(failed, update(p.write, p.img, sections))
	}
	return failed
}
