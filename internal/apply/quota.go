package apply

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// Quotas are counted exactly: DESIGN.md says how, and why so.

// tenants are the quotas in force with their counts. It is replaced at a rendezvous of all
// partitions; nil stands for none.
type tenants struct {
	index *auth.Index
	// shares are by partition, each under the lock of its store, and by quota.
	shares [][]share
}

// amount is of keys and their bytes, with their values.
type amount struct{ keys, bytes int64 }

func (a amount) plus(b amount) amount  { return amount{a.keys + b.keys, a.bytes + b.bytes} }
func (a amount) minus(b amount) amount { return amount{a.keys - b.keys, a.bytes - b.bytes} }

// share is what a quota has in one partition.
type share struct {
	used amount
	// granted is what used may grow to without the other partitions.
	granted amount
	// changed is no lower than the revision at which used changed last. It isn't stored.
	changed int64
}

// delta is what a command under way changes.
type delta struct {
	quota     int32
	partition int32
	amount
}

// account notes that a key of partition p goes from a size to another, of itself and its value; less than none
// stands for no key.
func (x *execution) account(p int, key []byte, before, after int64) {
	if bytes.HasPrefix(key, []byte(extension.Root)) {
		return // extensions and their states can't be refused where they are counted
	}
	list := x.tenants.index.Of(key)
	if len(list) == 0 {
		return
	}
	change := difference(before, after)
	if change == (amount{}) {
		return
	}
	for _, q := range list {
		x.addDelta(q, int32(p), change)
	}
}

// difference is the change from a size of a key-value to another; less than none stands for no key-value.
func difference(before, after int64) amount {
	change := amount{bytes: max(after, 0) - max(before, 0)}
	switch {
	case before < 0 && after >= 0:
		change.keys = 1
	case before >= 0 && after < 0:
		change.keys = -1
	}
	return change
}

// sizeOf is the size of a key-value for account.
func sizeOf(kv kvwire.KeyValue) int64 {
	if !kv.Exists() {
		return -1
	}
	return int64(len(kv.Key()) + len(kv.Value()))
}

// fewDeltas are searched one by one.
const fewDeltas = 8

func (x *execution) addDelta(q, p int32, change amount) {
	if len(x.deltas) <= fewDeltas {
		for i := range x.deltas {
			if d := &x.deltas[i]; d.quota == q && d.partition == p {
				d.amount = d.plus(change)
				return
			}
		}
	} else if i, ok := x.deltaOf[[2]int32{q, p}]; ok {
		x.deltas[i].amount = x.deltas[i].plus(change)
		return
	}
	x.deltas = append(x.deltas, delta{q, p, change})
	switch n := len(x.deltas); {
	case n == fewDeltas+1:
		if x.deltaOf == nil {
			x.deltaOf = map[[2]int32]int{}
		}
		for i, d := range x.deltas {
			x.deltaOf[[2]int32{d.quota, d.partition}] = i
		}
	case n > fewDeltas:
		x.deltaOf[[2]int32{q, p}] = n - 1
	}
}

// fits refuses the command under way if a quota doesn't allow its changes. Partitions of
// which some don't take part decide by what they have been granted; if that isn't enough,
// the command has to come again, with all.
func (x *execution) fits() error {
	t := x.tenants
	if t == nil || len(x.deltas) == 0 {
		return nil
	}
	if x.parts != x.m.Placement().All() {
		for _, d := range x.deltas {
			s := &t.shares[d.partition][d.quota]
			if grows(t.index.Quotas[d.quota].Limits, d.amount, s.used, s.granted) {
				return fmt.Errorf("beyond what is granted in partition %d of the quota of %v: %w", d.partition, &t.index.Quotas[d.quota], fault.Moved)
			}
		}
		return nil
	}
	for q, sum := range x.sums() {
		quota := &t.index.Quotas[q]
		used := t.used(int(q))
		if grows(quota.Limits, sum, used, amount{quota.Keys, quota.Bytes}) {
			return exceeded(quota, used, sum)
		}
	}
	return nil
}

// grows reports whether something that is limited would grow beyond a bound. What doesn't
// grow is allowed, also where more is used than that.
func grows(l auth.Limits, change, used, bound amount) bool {
	return l.Keys > 0 && change.keys > 0 && used.keys+change.keys > bound.keys ||
		l.Bytes > 0 && change.bytes > 0 && used.bytes+change.bytes > bound.bytes
}

func exceeded(q *auth.Quota, used, more amount) error {
	limit, of, has, needs := q.Keys, "keys", used.keys, more.keys
	if !grows(auth.Limits{Keys: q.Keys}, more, used, amount{keys: q.Keys}) {
		limit, of, has, needs = q.Bytes, "bytes", used.bytes, more.bytes
	}
	return fault.QuotaExceeded.With(fmt.Sprintf("stoa: quota of %v exceeded: %d %s, of which %d are used, and the request needs %d more", q, limit, of, has, needs))
}

// sums calls the loop body with each quota that the command changes, in order.
func (x *execution) sums() func(yield func(int32, amount) bool) {
	return func(yield func(int32, amount) bool) {
		if len(x.deltas) == 1 {
			yield(x.deltas[0].quota, x.deltas[0].amount)
			return
		}
		list := slices.Clone(x.deltas)
		slices.SortStableFunc(list, func(a, b delta) int { return cmp.Compare(a.quota, b.quota) })
		for i := 0; i < len(list); {
			q, sum := list[i].quota, amount{}
			for ; i < len(list) && list[i].quota == q; i++ {
				sum = sum.plus(list[i].amount)
			}
			if !yield(q, sum) {
				return
			}
		}
	}
}

// used is what a quota's keys take in all partitions.
func (t *tenants) used(q int) (sum amount) {
	for p := range t.shares {
		sum = sum.plus(t.shares[p][q].used)
	}
	return sum
}

// affords refuses the writes of a handler that don't fit beside the changes so far.
func (x *execution) affords(writes []extension.Write) error {
	if x.tenants == nil || len(writes) == 0 {
		return nil
	}
	before := slices.Clone(x.deltas)
	sizes := map[string]int64{}
	for i := range writes {
		w := &writes[i]
		p, s := x.store(w.Key)
		had, twice := sizes[string(w.Key)]
		if !twice {
			had = sizeOf(s.Get(w.Key))
		}
		size := int64(len(w.Key) + len(w.Kv.Value()))
		if w.Delete {
			size = -1
		}
		x.account(p, w.Key, had, size)
		sizes[string(w.Key)] = size
	}
	err := x.fits()
	x.resetDeltas()
	for _, d := range before {
		x.addDelta(d.quota, d.partition, d.amount)
	}
	return err
}

func (x *execution) resetDeltas() {
	x.deltas = x.deltas[:0]
	clear(x.deltaOf)
}

// settle counts the changes of a command that stands. With all partitions at hand the rest
// of each quota that it has changed is granted anew.
func (x *execution) settle() {
	t := x.tenants
	if t == nil || len(x.deltas) == 0 {
		return
	}
	for _, d := range x.deltas {
		s := &t.shares[d.partition][d.quota]
		s.used, s.changed = s.used.plus(d.amount), x.rev
	}
	if x.parts == x.m.Placement().All() {
		for q := range x.sums() {
			t.grant(int(q))
		}
	}
	x.resetDeltas()
}

// grant divides the rest of a quota among the partitions in equal parts. While more is used
// than allowed none may grow.
func (t *tenants) grant(q int) {
	if len(t.shares) == 1 {
		return // it decides by itself
	}
	used, limits := t.used(q), &t.index.Quotas[q].Limits
	left := amount{limits.Keys, limits.Bytes}.minus(used)
	n := int64(len(t.shares))
	for p := range t.shares {
		s := &t.shares[p][q]
		s.granted = amount{part(s.used.keys, left.keys, n, int64(p)), part(s.used.bytes, left.bytes, n, int64(p))}
	}
}

func part(used, left, n, p int64) int64 {
	if left < 0 {
		return 0
	}
	part := left / n
	if p < left%n {
		part++
	}
	return used + part
}

// quotaCommand sets or removes a quota.
func (x *execution) quotaCommand(body []byte) Result {
	change, err := auth.DecodeQuotaChange(body)
	if err != nil {
		return x.failed(unreadable(command.Quota, body))
	}
	if err := x.covers(x.m.Placement().All()); err != nil {
		return x.failed(fmt.Errorf("apply %v: %w", command.Quota, err))
	}
	if err := x.user.MustBeRoot(); err != nil {
		return x.failed(err)
	}
	before := x.m.Auth()
	after, err := before.ChangeQuota(change)
	if err != nil {
		return x.failed(err)
	}
	x.m.replaceAuth(before, after)
	return x.authResult(after)
}

// recount brings the counts up to date with a state of users and roles. Only quotas that
// are new, or for other keys than before, are counted; that takes the more time the more
// keys they have. The locks of all stores are held, or nothing else uses them yet.
func (m *Machine) recount(now *auth.State) {
	index, old := now.Index(), m.tenants.Load()
	if index == nil {
		m.tenants.Store(nil)
		return
	}
	t := &tenants{index: index, shares: make([][]share, len(m.Stores))}
	for p := range t.shares {
		t.shares[p] = make([]share, len(index.Quotas))
	}
	for q := range index.Quotas {
		if old != nil {
			if o, ok := old.index.Find(&index.Quotas[q]); ok && index.SameKeys(q, old.index, o) {
				for p := range t.shares {
					t.shares[p][q] = old.shares[p][o]
				}
				if index.Quotas[q] != old.index.Quotas[o] {
					t.grant(q)
				}
				continue
			}
		}
		for p := range t.shares {
			t.shares[p][q] = share{used: m.countQuota(index, q, p), changed: m.newest()}
		}
		t.grant(q)
	}
	m.tenants.Store(t)
}

// countQuota counts the keys of a quota in a partition.
func (m *Machine) countQuota(index *auth.Index, q, p int) (sum amount) {
	index.Spans(q, func(key, end []byte) {
		m.Stores[p].Sizes(key, end, func(key []byte, size int) {
			if !bytes.HasPrefix(key, []byte(extension.Root)) {
				sum = sum.plus(amount{1, int64(size)})
			}
		})
	})
	return sum
}

// carrier takes the counts of keys along that go to other partitions. The locks of all
// stores are held. Nil if there are no quotas.
type carrier struct {
	tenants *tenants
	rev     int64
	touched map[int32]bool
}

func (m *Machine) carrier() *carrier {
	t := m.tenants.Load()
	if t == nil {
		return nil
	}
	return &carrier{t, m.newest(), map[int32]bool{}}
}

// moved returns the function to be told of each key that moves.
func (c *carrier) moved() store.Moved {
	if c == nil {
		return nil
	}
	return func(from, to int, key []byte, size int) {
		if bytes.HasPrefix(key, []byte(extension.Root)) {
			return
		}
		one := amount{1, int64(size)}
		for _, q := range c.tenants.index.Of(key) {
			s := &c.tenants.shares[from][q]
			s.used, s.changed = s.used.minus(one), c.rev
			s = &c.tenants.shares[to][q]
			s.used, s.changed = s.used.plus(one), c.rev
			c.touched[q] = true
		}
	}
}

// touch has the quotas of all keys of a range divided anew, whether or not these move.
func (c *carrier) touch(stores []*store.Store, key, end []byte) {
	if c == nil {
		return
	}
	for _, s := range stores {
		s.Sizes(key, end, func(key []byte, _ int) {
			if bytes.HasPrefix(key, []byte(extension.Root)) {
				return
			}
			for _, q := range c.tenants.index.Of(key) {
				c.touched[q] = true
			}
		})
	}
}

// grant divides the quotas concerned anew.
func (c *carrier) grant() {
	if c == nil {
		return
	}
	for q := range c.touched {
		c.tenants.grant(int(q))
	}
}
