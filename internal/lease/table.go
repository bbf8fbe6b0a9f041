package lease

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
)

// MaxTTL is the longest lease that can be granted, in seconds; etcd's limit.
const MaxTTL = 9_000_000_000

// Lease is one lease. All times are in seconds.
type Lease struct {
	ID  int64
	TTL int64
	// Remaining is its remaining time at the last checkpoint; 0 means all, and
	// [Ending] that it is over, although some of its keys still exist.
	Remaining int64
	// Owner is the ID of the user who was granted it, 0 without authentication.
	Owner uint64
	// Number tells it from all other leases that have had its ID, or are to have it. 0: it has none, as it was granted
	// below the cluster's version that has them.
	Number uint64
}

// Is reports whether what is meant for the lease with a number is for this one. One without may be any.
func (l Lease) Is(number uint64) bool { return l.Number == 0 || l.Number == number }

// Ending is the remaining time of a lease that ends in several steps.
const Ending = -1

// left is the remaining time of the lease as far as the table knows.
func (l Lease) left() int64 {
	if l.Remaining > 0 {
		return l.Remaining
	}
	return l.TTL
}

// Table is the set of leases. Apply changes it while no other apply runs; any
// goroutine may read it at any time.
type Table struct {
	mu     sync.RWMutex
	leases map[int64]Lease
	dirty  map[int64]struct{} // changed since the last Cut
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{leases: map[int64]Lease{}, dirty: map[int64]struct{}{}}
}

// Load puts leases from the backend into the table. They do not count as
// changed.
func (t *Table) Load(leases ...Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range leases {
		t.leases[l.ID] = l
	}
}

// Grant adds a lease. The proposer has chosen the ID and raised the TTL to the
// least that its election timeout allows; here both are taken as they are.
func (t *Table) Grant(l Lease) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.ID == 0 {
		return fault.LeaseNotFound
	}
	if l.TTL > MaxTTL {
		return fault.LeaseTTLTooLarge
	}
	if _, ok := t.leases[l.ID]; ok {
		return fault.LeaseExists
	}
	t.set(l)
	return nil
}

// Unnumber takes the numbers of all leases away.
func (t *Table) Unnumber() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.leases {
		if l.Number != 0 {
			l.Number = 0
			t.set(l)
		}
	}
}

// Revoke removes a lease. The caller deletes its keys.
func (t *Table) Revoke(id int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.leases[id]; !ok {
		return fault.LeaseNotFound
	}
	delete(t.leases, id)
	t.dirty[id] = struct{}{}
	return nil
}

// End notes that a lease is over: it can't be used any more, and is to be revoked again.
func (t *Table) End(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.leases[id]; ok && l.Remaining != Ending {
		l.Remaining = Ending
		t.set(l)
	}
}

// Checkpoint notes how much of a lease remains; 0 for all of it. A lease that
// has been revoked meanwhile is no error: checkpoints and revocations can
// overtake each other.
func (t *Table) Checkpoint(id, remaining int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.leases[id]; ok && l.Remaining != remaining && l.Remaining != Ending {
		l.Remaining = remaining
		t.set(l)
	}
}

func (t *Table) set(l Lease) {
	t.leases[l.ID] = l
	t.dirty[l.ID] = struct{}{}
}

// Has reports whether the lease exists and isn't ending.
func (t *Table) Has(id int64) bool {
	l, ok := t.Get(id)
	return ok && l.Remaining != Ending
}

// Get returns a lease.
func (t *Table) Get(id int64) (Lease, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l, ok := t.leases[id]
	return l, ok
}

// Len is how many leases there are.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.leases)
}

// Each calls visit with all leases, in no order.
func (t *Table) Each(visit func(Lease)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, l := range t.leases {
		visit(l)
	}
}

// List returns all leases in the order of their ids.
func (t *Table) List() []Lease {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.SortedFunc(maps.Values(t.leases), func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) })
}

// IDs returns those of all leases, ascending.
func (t *Table) IDs() []int64 {
	t.mu.RLock()
	ids := make([]int64, 0, len(t.leases))
	for id := range t.leases {
		ids = append(ids, id)
	}
	t.mu.RUnlock()
	slices.Sort(ids)
	return ids
}

// Cut returns the changes since the last cut, in the order of ids: the leases
// as they are now, and the revoked ones. To be at one cut with the stores, it
// is called while all of them are locked.
func (t *Table) Cut() (changed []Lease, gone []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(t.dirty)) {
		if l, ok := t.leases[id]; ok {
			changed = append(changed, l)
		} else {
			gone = append(gone, id)
		}
	}
	clear(t.dirty)
	return changed, gone
}
