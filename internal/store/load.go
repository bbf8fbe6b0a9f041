package store

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// Loader fills stores from History's records after a restart. The stores are
// built beside each other, a goroutine each; values are copied only once it is
// known that they are current.
type Loader struct {
	route    func(key []byte) int
	builders []*builder
	wg       sync.WaitGroup
}

type record struct {
	rev       Revision
	tombstone bool
	raw       []byte
}

func (r *record) keyValue() (kvwire.KeyValue, error) {
	kv, err := kvwire.Parse(r.raw)
	if err == nil && !r.tombstone && kv.ModRevision() != r.rev.Main {
		err = fmt.Errorf("record of key %q says revision %d", kv.Key(), kv.ModRevision())
	}
	return kv, err
}

const loadBatch = 1024

// restAfter is the number of keys after which a builder rests.
const restAfter = 400

// NewLoader returns a loader for the partitions' new stores; route returns
// the one to which a key belongs. rest, unless it is nil, is called about every
// millisecond of work, by each store's goroutine. Finish must be called, also after an
// error.
func NewLoader(stores []*Store, route func(key []byte) int, rest func()) *Loader {
	l := &Loader{route: route}
	for _, s := range stores {
		b := &builder{store: s, in: make(chan []record, 8), rest: rest}
		l.builders = append(l.builders, b)
		l.wg.Go(b.run)
	}
	return l
}

// Add takes the next record in order of revision: raw is the change's KeyValue
// in protobuf. raw must stay readable until Finish; nothing keeps it after.
func (l *Loader) Add(rev Revision, tombstone bool, raw []byte) error {
	if len(raw) == 0 {
		return nil // etcdutl's mark of a revision that it has moved forward
	}
	p := 0
	if len(l.builders) > 1 {
		key, err := kvwire.Key(raw)
		if err != nil {
			return fmt.Errorf("load revision %d.%d: %w", rev.Main, rev.Sub, err)
		}
		if p = l.route(key); p < 0 || p >= len(l.builders) {
			return fmt.Errorf("load revision %d.%d: key %q belongs to partition %d of %d", rev.Main, rev.Sub, key, p, len(l.builders))
		}
	}
	b := l.builders[p]
	if b.batch == nil {
		b.batch = make([]record, 0, loadBatch)
	}
	if b.batch = append(b.batch, record{rev, tombstone, raw}); len(b.batch) == loadBatch {
		b.in <- b.batch
		b.batch = nil
	}
	return nil
}

// Finish copies the current values out, waits for the builders and returns
// their first error.
func (l *Loader) Finish() error {
	for _, b := range l.builders {
		if b.batch != nil {
			b.in <- b.batch
		}
		close(b.in)
	}
	l.wg.Wait()
	for _, b := range l.builders {
		if b.err != nil {
			return b.err
		}
	}
	return nil
}

// Restore sets the progress of a loaded store, after Finish: the last entry applied,
// the last compaction scheduled, and the last one finished. The revisions between the
// two are swept again.
func (s *Store) Restore(index, term uint64, rev, compacted, swept int64) {
	s.index, s.term = index, term
	s.rev = max(s.rev, rev, compacted)
	s.compacted = compacted
	s.sweep.target, s.sweep.done, s.sweep.handed, s.sweep.reported = swept, swept, swept, swept
	s.sweep.allowed = swept
	s.log.floor = Revision{s.rev, math.MaxInt64}
	s.log.last = s.log.floor
}

// builder builds one store.
type builder struct {
	store *Store
	in    chan []record
	rest  func() // nil: none
	keys  int    // since the last rest
	batch []record
	err   error
	all   []*entry // every key once, in order of first sight
}

type named struct {
	name  string
	entry *entry
}

func (b *builder) run() {
	for batch := range b.in {
		for i := 0; i < len(batch) && b.err == nil; i++ {
			b.pause()
			if err := b.add(&batch[i]); err != nil {
				r := batch[i].rev
				b.err = fmt.Errorf("load revision %d.%d: %w", r.Main, r.Sub, err)
			}
		}
	}
	if b.err == nil {
		b.finish()
	}
}

// pause is called for each key.
func (b *builder) pause() {
	if b.keys++; b.rest != nil && b.keys >= restAfter {
		b.keys = 0
		b.rest()
	}
}

// add puts a record into the index by hash; finish orders it. A KeyValue still
// lies in raw.
func (b *builder) add(r *record) error {
	s := b.store
	kv, err := r.keyValue()
	if err != nil {
		return err
	}
	if r.tombstone && !kv.IsTombstone() {
		kv = kvwire.Tombstone(kv.Key())
	}
	s.rev = max(s.rev, r.rev.Main)
	e := s.keys.get(kv.Key())
	switch {
	case e == nil:
		e = &entry{}
		e.set(kv)
		s.keys.add(e)
		b.all = append(b.all, e)
	case !e.deleted():
		s.supersede(e)
	}
	e.set(kv)
	if !r.tombstone {
		e.sub = uint32(r.rev.Sub)
		return nil
	}
	if e.past == nil { // compaction has removed the value that it deleted
		e.past = newPast()
		s.sweep.age(e)
	}
	e.past.add(mark{main: r.rev.Main, sub: uint32(r.rev.Sub), tomb: true})
	s.lastDelete = r.rev.Main
	return nil
}

// finish copies the values, in the order of the file, and then orders the keys,
// which costs a fraction of inserting them one by one. With rests they are inserted one
// by one, because sorting has none.
func (b *builder) finish() {
	s := b.store
	names := make([]named, len(b.all))
	for i, e := range b.all {
		b.pause()
		kv := e.kv().Clone()
		e.set(kv)
		names[i] = named{view(kv.Key()), e}
		s.reattach(e, 0, kv.Lease())
	}
	b.all = nil
	if b.rest == nil {
		slices.SortFunc(names, func(x, y named) int { return strings.Compare(x.name, y.name) })
	}
	for _, n := range names {
		b.pause()
		if n.entry.deleted() {
			s.tombstones.add(n.entry)
		} else {
			s.live.add(n.entry)
			s.bytes += int64(n.entry.kv().Len())
			s.sums.change(n.entry.key(), kvwire.KeyValue{}, n.entry.kv())
		}
	}
}
