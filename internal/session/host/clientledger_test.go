package host

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/store"
)

// ledger is what has taken effect, as the servers have applied it.
type ledger struct {
	mu        sync.Mutex
	has       map[[2]int64]bool // by partition and revision
	changes   []store.Change
	reached   atomic.Int64
	answered  atomic.Int64        // the highest revision that any client was answered with
	compacted atomic.Int64        // the highest that was compacted, or asked to be
	when      map[int64]time.Time // the first server had applied a revision
	rights    map[int64]uint64    // the revision of users and roles at each revision

	all   []*mvccpb.KeyValue // in order; without a version they are deletions
	byKey map[string][]*mvccpb.KeyValue
	keys  []string
}

// apply notes changes of one revision, which each server applies.
func (l *ledger) apply(c *rigCore, partition int, rev int64, changes []store.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rights[rev] = c.Machine.Auth().Revision
	if at := [2]int64{int64(partition), rev}; !l.has[at] {
		l.has[at] = true
		if l.when == nil {
			l.when = map[int64]time.Time{}
		}
		if _, before := l.when[rev]; !before {
			l.when[rev] = time.Now()
		}
		for _, c := range changes {
			c.Kv = c.Kv.Clone()
			l.changes = append(l.changes, c)
		}
		raise(&l.reached, rev)
	}
}

func raise(to *atomic.Int64, rev int64) {
	for {
		now := to.Load()
		if rev <= now || to.CompareAndSwap(now, rev) {
			return
		}
	}
}

// close puts it in order. Nothing may be applied after it.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.changes, func(a, b store.Change) int { return a.Compare(b.Revision) })
	l.byKey = map[string][]*mvccpb.KeyValue{}
	for _, c := range l.changes {
		kv := c.Kv.Message()
		kv.ModRevision = c.Main
		if c.Delete {
			kv = &mvccpb.KeyValue{Key: kv.Key, ModRevision: c.Main}
		}
		l.all = append(l.all, kv)
		l.byKey[string(kv.Key)] = append(l.byKey[string(kv.Key)], kv)
	}
	for k := range l.byKey {
		l.keys = append(l.keys, k)
	}
	slices.Sort(l.keys)
}

// at is a key at a revision, nil if it isn't there.
func (l *ledger) at(key string, rev int64) *mvccpb.KeyValue {
	var last *mvccpb.KeyValue
	for _, kv := range l.byKey[key] {
		if kv.ModRevision > rev {
			break
		}
		last = kv
	}
	if last == nil || last.Version == 0 {
		return nil
	}
	return last
}

// within tells whether a range, or a key alone, has a key.
func within(key, from, end string) bool {
	if end == "" {
		return key == from
	}
	return key >= from && key < end
}

// find is what a read of a range shows at a revision.
func (l *ledger) find(from, end string, rev int64) (kvs []*mvccpb.KeyValue) {
	for _, k := range l.keys {
		if kv := l.at(k, rev); kv != nil && within(k, from, end) {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

// events are the changes in a range from a revision to another.
func (l *ledger) events(from, end string, first, last int64) (kvs []*mvccpb.KeyValue) {
	for _, kv := range l.all {
		if kv.ModRevision >= first && kv.ModRevision <= last && within(string(kv.Key), from, end) {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

// written returns the revisions at which a key got a value.
func (l *ledger) written(key, value string) (revs []int64) {
	for _, kv := range l.byKey[key] {
		if kv.Version != 0 && string(kv.Value) == value {
			revs = append(revs, kv.ModRevision)
		}
	}
	return revs
}
