//go:build !race

// As explore_test.go: there is no second goroutine.

package commit

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// crowd is what world is too small for: several clients, each with one transaction behind the
// other, again when it has met others, over three clusters. What happens next is drawn from a seed:
// which request is executed, whether its answer is lost, which client or recovery crashes, which
// lease expires, which lock is met.
//
// Each transaction moves an amount from one account to another one, after reading a third; some
// read them all. Values name the transaction that has written them. So in the end the sum is known,
// and the order of all values of all keys tells whether the transactions had an order.
type crowd struct {
	rnd      *rand.Rand
	mutate   func(*Request)
	clusters [crowdClusters]cluster
	clients  []*crowdClient
	recovers []*recovery
	late     []Request
	leases   int64          // granted so far
	expired  map[int64]bool // by lease
	orphans  []int64        // leases of clients that have crashed
	now      int            // steps so far
	begun    int            // transactions
	ended    []*deed
	written  map[string][]string // by account, the transactions that have written it
	trace    []string
}

const (
	crowdClusters = 3
	crowdClients  = 4
	accountsEach  = 2
	openingAmount = 100
)

// crowdClient is a client of a crowd. Its lease goes when it crashes, and when it has to retire it.
type crowdClient struct {
	*Coordinator
	calls
	lease    int64
	parts    []Part
	deed     *deed
	blockers []Met // to be resolved before the next attempt
	resolves *recovery
}

// deed is one attempt at a transaction, as its client knows it.
type deed struct {
	txn        string
	begin, end int // steps
	outcome    Outcome
	reads      map[string]string // by account, the transaction whose value was read
	sum        int
	writes     []string
	all        bool // it reads all accounts
}

func newCrowd(seed uint64) *crowd {
	w := &crowd{rnd: rand.New(rand.NewPCG(seed, 1)), expired: map[int64]bool{}, written: map[string][]string{}}
	for i := range w.clusters {
		w.clusters[i] = cluster{revision: 1, keys: map[string]KV{}}
		for n := range accountsEach {
			k := strconv.Itoa(n)
			w.clusters[i].keys[k] = KV{Key: k, Mod: 1, Value: amountBy(openingAmount, "opening")}
			w.written[accountOf(uint64(i), k)] = []string{"opening"}
		}
	}
	for range crowdClients {
		w.clients = append(w.clients, &crowdClient{lease: w.grant()})
	}
	return w
}

func accountOf(cluster uint64, key string) string { return fmt.Sprintf("%d/%s", cluster, key) }

func amountBy(n int, txn string) []byte { return fmt.Appendf(nil, "%d %s", n, txn) }

func parseAmount(b []byte) (n int, txn string) {
	_, _ = fmt.Sscanf(string(b), "%d %s", &n, &txn)
	return n, txn
}

func (w *crowd) grant() int64 {
	w.leases++
	return w.leases
}

func (w *crowd) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// expire ends a lease, and with it the records that it has.
func (w *crowd) expire(lease int64) {
	w.expired[lease] = true
	for _, c := range w.clusters {
		maps.DeleteFunc(c.keys, func(_ string, kv KV) bool { return kv.Lease == lease })
	}
}

// execute executes a request, and records what it has written.
func (w *crowd) execute(r Request) Answer {
	c := &w.clusters[r.Cluster]
	before := c.revision
	a := c.execute(r, func(lease int64) bool { return w.expired[lease] })
	for k, kv := range c.keys {
		if kv.Mod > before && !strings.HasPrefix(k, Prefix) {
			_, txn := parseAmount(kv.Value)
			of := accountOf(r.Cluster, k)
			w.written[of] = append(w.written[of], txn)
		}
	}
	return a
}

func (w *crowd) mutated(rs []Request) []Request {
	for i := range rs {
		if w.mutate != nil {
			rs[i].If, rs[i].Then = slices.Clone(rs[i].If), slices.Clone(rs[i].Then)
			w.mutate(&rs[i])
		}
	}
	return rs
}

// run lets so many things happen, and then everything end. It says what is wrong.
func (w *crowd) run(steps int) string {
	for w.now = range steps {
		w.happen()
	}
	return w.settle()
}

// happen is one step.
func (w *crowd) happen() {
	i := w.rnd.IntN(len(w.clients))
	c := w.clients[i]
	switch n := w.rnd.IntN(1000); {
	case n < 4:
		w.note("client %d crashes", i)
		w.crash(i)
	case n < 16:
		w.note("the lease of client %d expires", i)
		w.expire(c.lease)
	case n < 26 && len(w.orphans) > 0:
		w.expire(w.orphans[0])
		w.orphans = w.orphans[1:]
	case n < 60 && len(w.late) > 0:
		j := w.rnd.IntN(len(w.late))
		r := w.late[j]
		w.late = slices.Delete(w.late, j, j+1)
		w.note("late: %s in %d", r.Step, r.Cluster)
		w.execute(r)
	case n < 100:
		w.meet()
	case n < 300 && len(w.recovers) > 0:
		j := w.rnd.IntN(len(w.recovers))
		if w.stepRecovery(w.recovers[j], true) {
			w.recovers = slices.Delete(w.recovers, j, j+1)
		}
	default:
		w.client(c, true)
	}
}

// crash puts another client in the place of one. Requests on their way may be executed later.
func (w *crowd) crash(i int) {
	c := w.clients[i]
	w.late = append(w.late, c.open()...)
	if c.resolves != nil {
		w.late = append(w.late, c.resolves.open()...)
	}
	w.close(c, Open)
	w.orphans = append(w.orphans, c.lease)
	w.clients[i] = &crowdClient{lease: w.grant()}
}

// open are the requests without an answer.
func (c *calls) open() (rs []Request) {
	for i, r := range c.asked {
		if c.answers[i] == nil {
			rs = append(rs, r)
		}
	}
	return rs
}

// meet begins the recovery of some lock.
func (w *crowd) meet() {
	var all [][]Met
	for i := range w.clusters {
		for _, l := range w.locks(i) {
			all = append(all, []Met{l})
		}
	}
	if len(all) > 0 {
		met := all[w.rnd.IntN(len(all))]
		w.note("a lock of %s is met in %d", met[0].Lock.Txn, met[0].Cluster)
		w.recovers = append(w.recovers, w.recovery(met))
	}
}

func (w *crowd) recovery(met []Met) *recovery {
	r := &recovery{Recovery: Recover(met[0].Lock.Txn, met[0].Lock.Home, met)}
	r.ask(w.mutated(r.Next(nil)))
	return r
}

// locks are those in a cluster, in the order of their keys.
func (w *crowd) locks(i int) []Met {
	var kvs []*KV
	for _, k := range slices.Sorted(maps.Keys(w.clusters[i].keys)) {
		if kv := w.clusters[i].keys[k]; strings.HasPrefix(k, LockPrefix) {
			kvs = append(kvs, &kv)
		}
	}
	return MetIn(uint64(i), kvs)
}

// answer executes one of the requests on their way; its answer may be lost.
func (w *crowd) answer(c *calls, faults bool) {
	var left []int
	for i := range c.asked {
		if c.answers[i] == nil {
			left = append(left, i)
		}
	}
	i := left[w.rnd.IntN(len(left))]
	r := c.asked[i]
	if !faults || w.rnd.IntN(50) > 0 {
		a := w.execute(r)
		c.answers[i] = &a
		return
	}
	c.answers[i] = &Answer{Err: errLost}
	switch w.rnd.IntN(3) {
	case 0:
		w.note("the request %s in %d is lost", r.Step, r.Cluster)
	case 1:
		w.note("the answer to %s in %d is lost", r.Step, r.Cluster)
		w.execute(r)
	default:
		w.note("the request %s in %d is late", r.Step, r.Cluster)
		w.late = append(w.late, r)
	}
}

// stepRecovery reports whether the recovery has ended; it may crash.
func (w *crowd) stepRecovery(r *recovery, faults bool) (ended bool) {
	if len(r.asked) == 0 {
		return true
	}
	if faults && w.rnd.IntN(50) == 0 {
		w.late = append(w.late, r.open()...)
		return true
	}
	w.note("recovery of %s: %s", r.txn, r.at)
	w.answer(&r.calls, faults)
	if answers, ok := r.all(); ok {
		r.ask(w.mutated(r.Next(answers)))
	}
	return len(r.asked) == 0
}

// client lets one request of a client be answered, or makes it begin.
func (w *crowd) client(c *crowdClient, faults bool) {
	switch {
	case c.resolves != nil:
		if w.stepRecovery(c.resolves, false) {
			c.resolves = nil
		}
	case len(c.asked) > 0:
		w.note("%s: %s", c.txn.ID, c.at)
		w.answer(&c.calls, faults)
		if answers, ok := c.all(); ok {
			w.next(c, answers)
		}
	case len(c.blockers) > 0:
		c.resolves = w.recovery(c.blockers[:1])
		c.blockers = c.blockers[1:]
	case faults:
		w.begin(c)
	}
}

func (w *crowd) next(c *crowdClient, answers []Answer) {
	rs := c.Next(answers)
	if c.Locked() {
		rs = w.decide(c)
	}
	if c.at == Commit && c.lost && w.rnd.IntN(4) == 0 {
		rs = c.Unknown(errLost)
	}
	if c.Outcome() != Open {
		w.close(c, c.Outcome())
	}
	if c.Retire() && !w.expired[c.lease] {
		w.note("%s retires its lease", c.txn.ID)
		w.expire(c.lease)
	}
	if len(rs) == 0 {
		c.blockers = c.Blockers()
		if c.Outcome() != IsAbandoned {
			c.parts = nil
		}
	}
	c.ask(w.mutated(rs))
}

// close records what the client knows of its transaction, the first time.
func (w *crowd) close(c *crowdClient, o Outcome) {
	if c.deed == nil {
		return
	}
	c.deed.outcome, c.deed.end = o, w.now
	w.ended = append(w.ended, c.deed)
	c.deed = nil
}

// begin begins a transaction, or the next attempt at it.
func (w *crowd) begin(c *crowdClient) {
	if w.expired[c.lease] {
		c.lease = w.grant()
	}
	if c.parts == nil {
		c.parts = w.draw()
	}
	w.begun++
	c.deed = &deed{txn: fmt.Sprintf("t%d", w.begun), begin: w.now, reads: map[string]string{}}
	c.Coordinator = New(Txn{ID: c.deed.txn, Lease: c.lease, Parts: c.parts})
	w.note("%s begins: %v", c.deed.txn, c.parts)
	c.ask(w.mutated(c.Next(nil)))
}

// draw draws the keys of a transaction: three, or sometimes all, of two clusters at least.
func (w *crowd) draw() []Part {
	most := 3
	if w.rnd.IntN(3) == 0 {
		most = crowdClusters * accountsEach
	}
	for {
		byCluster := map[uint64][]string{}
		for _, n := range w.rnd.Perm(crowdClusters * accountsEach)[:most] {
			at := uint64(n % crowdClusters)
			byCluster[at] = append(byCluster[at], strconv.Itoa(n/crowdClusters))
		}
		if len(byCluster) < 2 {
			continue
		}
		var parts []Part
		for _, n := range w.rnd.Perm(crowdClusters) {
			if keys := byCluster[uint64(n)]; keys != nil {
				parts = append(parts, Part{Cluster: uint64(n), Keys: keys})
			}
		}
		return parts
	}
}

// decide moves an amount from the first account to the last one. Transactions of all accounts
// change nothing.
func (w *crowd) decide(c *crowdClient) []Request {
	writes := make([][]Write, len(c.txn.Parts))
	type account struct {
		part   int
		key    string
		amount int
	}
	var all []account
	for i, p := range c.txn.Parts {
		for j, k := range p.Keys {
			amount, txn := parseAmount(c.Values(i)[j].Value)
			c.deed.reads[accountOf(p.Cluster, k)] = txn
			c.deed.sum += amount
			all = append(all, account{i, k, amount})
		}
	}
	if c.deed.all = len(all) == crowdClusters*accountsEach; c.deed.all {
		return c.CommitNothing()
	}
	for _, move := range []struct{ of, sign int }{{0, -1}, {len(all) - 1, 1}} {
		a := all[move.of]
		writes[a.part] = append(writes[a.part], Write{Key: []byte(a.key), Value: amountBy(a.amount+move.sign*(1+all[1].amount%7), c.deed.txn)})
		c.deed.writes = append(c.deed.writes, accountOf(c.txn.Parts[a.part].Cluster, a.key))
	}
	return c.Commit(writes)
}

// settle lets everything end without further faults, and says what is wrong.
func (w *crowd) settle() string {
	for i, c := range w.clients {
		for n := 0; len(c.asked) > 0 || len(c.blockers) > 0 || c.resolves != nil; n++ {
			if w.client(c, false); n > 1000 {
				return fmt.Sprintf("client %d doesn't end", i)
			}
		}
	}
	for _, i := range w.rnd.Perm(len(w.late)) {
		w.execute(w.late[i])
	}
	for lease := range w.leases {
		w.expire(lease + 1)
	}
	for _, r := range w.recovers {
		for !w.stepRecovery(r, false) {
		}
	}
	for range 3 {
		for i := range w.clusters {
			for _, l := range w.locks(i) {
				w.finish(w.recovery([]Met{l}))
			}
			for k := range w.clusters[i].keys {
				if txn, ok := strings.CutPrefix(k, RecordPrefix); ok {
					r := &recovery{Recovery: Recover(txn, uint64(i), nil)}
					r.ask(w.mutated(r.Next(nil)))
					w.finish(r)
				}
			}
		}
	}
	return w.wrong()
}

func (w *crowd) finish(r *recovery) {
	for !w.stepRecovery(r, false) {
	}
}

func (w *crowd) wrong() string {
	sum := 0
	for i := range w.clusters {
		for k, kv := range w.clusters[i].keys {
			if strings.HasPrefix(k, Prefix) {
				return fmt.Sprintf("in %d stays %s: %s", i, k, kv.Value)
			}
			n, _ := parseAmount(kv.Value)
			sum += n
		}
	}
	if sum != openingAmount*accountsEach*crowdClusters {
		return fmt.Sprintf("the sum is %d", sum)
	}
	times := map[string]int{} // by account and transaction
	for of, txns := range w.written {
		for _, txn := range txns {
			times[of+" "+txn]++
		}
	}
	var done []*deed
	for _, d := range w.ended {
		n := 0
		for _, of := range d.writes {
			if times[of+" "+d.txn] > 1 {
				return fmt.Sprintf("%s has written %s twice", d.txn, of)
			}
			n += times[of+" "+d.txn]
		}
		switch {
		case n != 0 && n != len(d.writes):
			return fmt.Sprintf("%s has written %d accounts of %v", d.txn, n, d.writes)
		case d.outcome == IsCommitted && n != len(d.writes):
			return fmt.Sprintf("%s has committed, and its writes are lost", d.txn)
		case d.outcome == IsAbandoned && n > 0:
			return fmt.Sprintf("%s was abandoned, and has written", d.txn)
		case d.outcome == IsCommitted && d.all && d.sum != openingAmount*accountsEach*crowdClusters:
			return fmt.Sprintf("%s has read a sum of %d", d.txn, d.sum)
		}
		if d.outcome == IsCommitted || n > 0 {
			done = append(done, d)
		}
	}
	return cycleOf(w.written, done)
}

// cycleOf is a cycle of what has to be before what: a value before the next one of its key, and its
// writer before those that have read it, and those before the writer of the next one (Adya: Weak
// Consistency, §4); and what had ended before what began later. Empty if there is none.
func cycleOf(written map[string][]string, done []*deed) string {
	behind := map[string][]string{}
	next := map[string]string{}
	for of, txns := range written {
		for i := 1; i < len(txns); i++ {
			next[of+" "+txns[i-1]] = txns[i]
			behind[txns[i-1]] = append(behind[txns[i-1]], txns[i])
		}
	}
	for _, d := range done {
		for of, from := range d.reads {
			behind[from] = append(behind[from], d.txn)
			if n := next[of+" "+from]; n != "" && n != d.txn {
				behind[d.txn] = append(behind[d.txn], n)
			}
		}
		for _, later := range done {
			if d.outcome == IsCommitted && d.end < later.begin {
				behind[d.txn] = append(behind[d.txn], later.txn)
			}
		}
	}
	state := map[string]int{} // 1: on the path, 2: done
	var path []string
	var visit func(string) bool
	visit = func(n string) bool {
		state[n], path = 1, append(path, n)
		for _, m := range behind[n] {
			if state[m] == 1 || state[m] == 0 && visit(m) {
				return true
			}
		}
		state[n], path = 2, path[:len(path)-1]
		return false
	}
	for n := range behind {
		if state[n] == 0 && visit(n) {
			return fmt.Sprintf("a cycle: %v", path)
		}
	}
	return ""
}

var (
	crowdSeed = flag.Uint64("seed", 0, "of the first crowd; 0: drawn")
	crowdRuns = flag.Int("crowds", 20, "number of crowds")
)

const crowdSteps = 3000

// Several clients with one transaction behind the other are serializable whatever fails, and leave
// nothing behind.
func TestCrowds(t *testing.T) {
	seed := *crowdSeed
	if seed == 0 {
		seed = rand.Uint64() >> 32
	}
	committed, attempts := 0, 0
	for i := range uint64(*crowdRuns) {
		w := newCrowd(seed + i)
		fault := w.run(crowdSteps)
		require.Empty(t, fault, "-seed %d -crowds 1: %s", seed+i, strings.Join(w.trace[max(0, len(w.trace)-100):], "\n"))
		attempts += w.begun
		for _, d := range w.ended {
			if d.outcome == IsCommitted {
				committed++
			}
		}
	}
	t.Logf("from seed %d on: %d attempts, %d committed", seed, attempts, committed)
	require.Greater(t, committed, 10**crowdRuns)
}

// Crowds find faults of the protocol, though there is no saying at which seed.
func TestCrowdMutations(t *testing.T) {
	for name, mutate := range map[string]func(*Request){
		"begin doesn't look for locks":          at(Begin, noConditions),
		"prepare doesn't look for locks":        at(Prepare, noConditions),
		"commit doesn't look at the record":     at(Commit, noConditions),
		"roll forward doesn't look at the lock": at(RollForward, noConditions),
		"locks are released whoever's they are": func(r *Request) {
			if r.Step == Release && r.If[0].Test == IsAt {
				r.If = nil
			}
		},
		"the record is removed with the commit": at(Commit, func(r *Request) { r.Then[0] = del(r.Then[0].Key) }),
		"roll forward unlocks before it writes": at(RollForward, func(r *Request) {
			r.Then = slices.DeleteFunc(r.Then, func(op Op) bool { return op.Do == Put })
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				w := newCrowd(seed)
				w.mutate = mutate
				if fault := w.run(crowdSteps); fault != "" {
					t.Logf("seed %d: %s", seed, fault)
					return
				}
			}
			t.Error("not found")
		})
	}
}
