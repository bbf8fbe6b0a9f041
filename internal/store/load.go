package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
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

const loadBatch = 1024

// NewLoader returns a loader for the partitions' new stores; route tells to
// which of them a key belongs. Finish must be called, also after an error.
func NewLoader(stores []*Store, route func(key []byte) int) *Loader {
	l := &Loader{route: route}
	for _, s := range stores {
		b := &builder{store: s, in: make(chan []record, 8)}
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
		key, err := peekKey(raw)
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

// Restore sets where a loaded store stands, after Finish: what it has applied,
// the last compaction that was asked for, and the last that was carried out in
// full. What lies between the two is swept again.
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
	batch []record
	err   error
	slab  []byte  // where the next keys go
	names []named // every key once, in order of first sight
}

type named struct {
	name  string
	entry *entry
}

func (b *builder) run() {
	for batch := range b.in {
		for i := 0; i < len(batch) && b.err == nil; i++ {
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

// add puts a record into the index by hash; finish orders it. A current value
// still points into raw.
func (b *builder) add(r *record) error {
	s := b.store
	var kv mvccpb.KeyValue
	if err := decode(r.raw, &kv); err != nil {
		return err
	}
	if !r.tombstone && kv.ModRevision != r.rev.Main {
		return fmt.Errorf("record of key %q says revision %d", kv.Key, kv.ModRevision)
	}
	s.rev = max(s.rev, r.rev.Main)
	e := s.keys[view(kv.Key)]
	switch {
	case e == nil:
		e = &entry{}
		kv.Key = b.keep(kv.Key)
		s.keys[view(kv.Key)] = e
		b.names = append(b.names, named{view(kv.Key), e})
	case e.cur != nil:
		kv.Key = e.cur.Key
		s.supersede(e, view(kv.Key))
	default: // back from the dead
		kv.Key = b.keep(kv.Key)
	}
	if r.tombstone {
		if e.past == nil { // compaction has taken what it deleted
			e.past = newPast()
			s.sweep.aged.push(view(kv.Key))
		}
		e.past.add(mark{main: r.rev.Main, sub: uint32(r.rev.Sub), tomb: true})
		e.cur = nil
		s.lastDelete = r.rev.Main
		return nil
	}
	if e.cur == nil {
		e.cur = &mvccpb.KeyValue{}
	}
	set(e.cur, &kv)
	e.sub = uint32(r.rev.Sub)
	return nil
}

// keep copies a key's bytes. Keys outlive values, so they share small blocks,
// which saves the allocator's rounding.
func (b *builder) keep(key []byte) []byte {
	if len(key) > 512 {
		return append([]byte(nil), key...)
	}
	if len(key) > cap(b.slab)-len(b.slab) {
		b.slab = make([]byte, 0, 4096)
	}
	n := len(b.slab)
	b.slab = append(b.slab, key...)
	return b.slab[n:len(b.slab):len(b.slab)]
}

// finish copies the values, in the order of the file, and then orders the keys,
// which costs a fraction of inserting them one by one.
func (b *builder) finish() {
	s := b.store
	for _, n := range b.names {
		if kv := n.entry.cur; kv != nil {
			kv.Value = append([]byte(nil), kv.Value...)
			if kv.Lease != 0 {
				s.reattach(kv.Key, nil, kv.Lease)
			}
		}
	}
	slices.SortFunc(b.names, func(x, y named) int { return strings.Compare(x.name, y.name) })
	for _, n := range b.names {
		if n.entry.cur != nil {
			s.live.Load(n.name, n.entry)
		} else {
			s.graves.Load(n.name, n.entry)
		}
	}
	b.names = nil
}

var errRecord = errors.New("record is not a KeyValue")

// decode reads a KeyValue that aliases raw. proto.Unmarshal would copy every
// value of history only for most of them to be superseded.
func decode(raw []byte, kv *mvccpb.KeyValue) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return errRecord
		}
		raw = raw[n:]
		switch {
		case typ == protowire.BytesType && (num == 1 || num == 5):
			v, n := protowire.ConsumeBytes(raw)
			if n < 0 {
				return errRecord
			}
			raw = raw[n:]
			if num == 1 {
				kv.Key = v
			} else {
				kv.Value = v
			}
		case typ == protowire.VarintType && num >= 2 && num <= 6:
			v, n := protowire.ConsumeVarint(raw)
			if n < 0 {
				return errRecord
			}
			raw = raw[n:]
			switch num {
			case 2:
				kv.CreateRevision = int64(v)
			case 3:
				kv.ModRevision = int64(v)
			case 4:
				kv.Version = int64(v)
			case 6:
				kv.Lease = int64(v)
			}
		default:
			n := protowire.ConsumeFieldValue(num, typ, raw)
			if n < 0 {
				return errRecord
			}
			raw = raw[n:]
		}
	}
	if len(kv.Key) == 0 {
		return errRecord
	}
	return nil
}

func set(dst, src *mvccpb.KeyValue) {
	dst.Key, dst.Value, dst.Lease = src.Key, src.Value, src.Lease
	dst.CreateRevision, dst.ModRevision, dst.Version = src.CreateRevision, src.ModRevision, src.Version
}

// peekKey returns the key, which every writer puts first.
func peekKey(raw []byte) ([]byte, error) {
	if len(raw) > 0 && raw[0] == 0x0a {
		if key, n := protowire.ConsumeBytes(raw[1:]); n > 0 {
			return key, nil
		}
	}
	var kv mvccpb.KeyValue
	if err := decode(raw, &kv); err != nil {
		return nil, err
	}
	return kv.Key, nil
}
