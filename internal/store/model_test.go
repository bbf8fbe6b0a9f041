//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes ten times as long.

package store_test

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// model is what MVCC means, as naively as it can be said: the list of all
// changes ever made.
type model struct {
	changes   []modelChange
	compacted int64
}

type modelChange struct {
	rev       store.Revision
	kv        *mvccpb.KeyValue
	tombstone bool
}

func (m *model) get(key string, rev int64) *mvccpb.KeyValue {
	var kv *mvccpb.KeyValue
	for _, c := range m.changes {
		if string(c.kv.Key) == key && c.rev.Main <= rev {
			if kv = c.kv; c.tombstone {
				kv = nil
			}
		}
	}
	return kv
}

func (m *model) scan(key, end string, rev int64) (kvs []*mvccpb.KeyValue) {
	keys := map[string]bool{}
	for _, c := range m.changes {
		if inRange(string(c.kv.Key), key, end) {
			keys[string(c.kv.Key)] = true
		}
	}
	for k := range keys {
		if kv := m.get(k, rev); kv != nil {
			kvs = append(kvs, kv)
		}
	}
	sort.Slice(kvs, func(i, j int) bool { return bytes.Compare(kvs[i].Key, kvs[j].Key) < 0 })
	return kvs
}

func (m *model) put(at store.Revision, key, value string, lease int64) {
	kv := &mvccpb.KeyValue{
		Key: []byte(key), Value: []byte(value), Lease: lease,
		CreateRevision: at.Main, ModRevision: at.Main, Version: 1,
	}
	if old := m.get(key, at.Main); old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	m.changes = append(m.changes, modelChange{at, kv, false})
}

func (m *model) remove(at store.Revision, key string) {
	m.changes = append(m.changes, modelChange{at, &mvccpb.KeyValue{Key: []byte(key)}, true})
}

// survivors are the changes that a finished compaction leaves: by etcd's rule, and all of its own revision.
func (m *model) survivors() (out []modelChange) {
	for i, c := range m.changes {
		newest := true
		for _, d := range m.changes[i+1:] {
			if bytes.Equal(c.kv.Key, d.kv.Key) && d.rev.Main <= m.compacted {
				newest = false
			}
		}
		if c.rev.Main >= m.compacted || newest && !c.tombstone {
			out = append(out, c)
		}
	}
	return out
}

func inRange(k, key, end string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

// machine runs stores over one backend beside the model.
type machine struct {
	path    string // "" for a backend in memory
	be      *backend.Backend
	stores  []*store.Store
	model   model
	rev     int64
	pending *backend.Cut
	atCut   model // what the pending cut holds
	cutRev  int64
	durable model // what a crash leaves
	durRev  int64
	windows bool // stores keep what is flushed for a while

	// homes are the stores of keys that have moved.
	homes, homesAtCut, homesDurable map[string]int
}

func (m *machine) route(key []byte) int {
	if p, ok := m.homes[string(key)]; ok {
		return p
	}
	return int(key[len(key)-1]) % len(m.stores)
}

func (m *machine) of(key string) *store.Store { return m.stores[m.route([]byte(key))] }

var (
	allKeys  = []string{"a", "a0", "a1", "b", "b/x", "b/y", "c", "d", "d2", "e"}
	genKey   = rapid.SampledFrom(allKeys)
	genEnd   = rapid.SampledFrom([]string{"", "\x00", "b", "b0", "c", "d1", "z"})
	genLease = rapid.SampledFrom([]int64{0, 0, 7, 8})
)

// write makes some changes at one revision, over all stores.
func (m *machine) write(t *rapid.T) {
	m.rev += int64(rapid.IntRange(1, 3).Draw(t, "step"))
	if rapid.IntRange(0, 3).Draw(t, "taken back") == 0 {
		m.takeBack(t)
	}
	m.change(t, 0)
}

// takeBack makes changes, and takes them back again.
func (m *machine) takeBack(t *rapid.T) {
	before := m.model.clone()
	marks := make([]store.Mark, len(m.stores))
	for i, s := range m.stores {
		marks[i] = s.Mark()
	}
	sub := int64(0)
	for range rapid.IntRange(1, 3).Draw(t, "rounds") {
		sub = m.change(t, sub)
	}
	for i, s := range m.stores {
		s.Lock()
		rev := s.Rev()
		s.Undo(marks[i])
		require.LessOrEqual(t, s.Rev(), rev)
		require.Less(t, s.Rev(), m.rev)
		s.Unlock()
	}
	m.model = before
}

func (m *machine) change(t *rapid.T, sub int64) int64 {
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(t, "changes") {
		key := genKey.Draw(t, "key")
		at := store.Revision{Main: m.rev, Sub: sub}
		s := m.of(key)
		s.Lock()
		old := m.model.get(key, m.rev)
		var c store.Change
		ok := true
		if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
			lease, value := genLease.Draw(t, "lease"), fmt.Sprint("v", at)
			m.model.put(at, key, value, lease)
			switch made := m.model.changes[len(m.model.changes)-1].kv; rapid.IntRange(0, 2).Draw(t, "made") {
			case 0:
				c = s.Put(at, []byte(key), []byte(value), lease)
			case 1:
				kv := kvwire.Of(made)
				c = s.PutMade(at, kv)
				require.True(t, unsafe.SliceData(kv.Wire()) == unsafe.SliceData(c.Kv.Wire()), "it isn't copied")
			case 2: // with numbers of a state that isn't this one
				wrong := proto.CloneOf(made)
				wrong.Version++
				c = s.PutMade(at, kvwire.Of(wrong))
			}
		} else if c, ok = s.Delete(at, []byte(key)); ok {
			m.model.remove(at, key)
		}
		s.Unlock()
		require.Equal(t, old != nil || !c.Delete && ok, ok)
		if ok {
			equal(t, m.model.get(key, m.rev-1), c.Prev)
			equal(t, m.model.changes[len(m.model.changes)-1].kv, c.Kv)
			sub++
		}
	}
	return sub
}

// move gives the keys of a range other stores, at a revision at which there may
// also be changes before and after.
func (m *machine) move(t *rapid.T) {
	m.rev++
	sub := int64(0)
	if rapid.Bool().Draw(t, "changes before") {
		sub = m.change(t, sub)
	}
	key, end := genKey.Draw(t, "first"), rapid.SampledFrom([]string{"\x00", "b", "c", "d1", "z"}).Draw(t, "behind")
	homes := maps.Clone(m.homes)
	if homes == nil {
		homes = map[string]int{}
	}
	to := rapid.IntRange(0, len(m.stores)-1).Draw(t, "to")
	for _, k := range allKeys {
		if inRange(k, key, end) {
			homes[k] = to
		}
	}
	m.homes = homes
	for _, s := range m.stores {
		s.Lock()
	}
	store.Move(m.stores, []byte(key), []byte(end), store.Route{To: func(key []byte) (int, []byte) { return m.route(key), nil }}, nil)
	for _, s := range m.stores {
		if rapid.Bool().Draw(t, "forward") {
			s.SetRev(m.rev)
		}
		s.Unlock()
	}
	if rapid.Bool().Draw(t, "changes after") {
		m.change(t, sub)
	}
}

func (m *machine) burst(t *rapid.T) {
	for range 70 {
		m.write(t)
	}
}

func (m *machine) compact(t *rapid.T) {
	if m.rev <= m.model.compacted {
		return
	}
	rev := rapid.Int64Range(max(0, m.model.compacted+1), m.rev).Draw(t, "compact")
	m.model.compacted = rev
	for _, s := range m.stores {
		s.Lock()
		s.Compact(rev)
		s.Unlock()
	}
}

func (m *machine) cut(*rapid.T) {
	if m.pending != nil {
		return
	}
	m.pending = &backend.Cut{}
	for i, s := range m.stores {
		s.Lock()
		s.SetApplied(uint64(m.rev), uint64(i+1))
		m.pending.Partitions = append(m.pending.Partitions, s.Cut())
		s.Unlock()
	}
	m.atCut, m.cutRev, m.homesAtCut = m.model.clone(), m.rev, m.homes
}

func (m *machine) flush(t *rapid.T) {
	if m.pending == nil {
		return
	}
	require.NoError(t, m.be.Flush(m.pending))
	disturbed := rapid.IntRange(0, 10*len(m.stores)).Draw(t, "move before release")
	for i, s := range m.stores {
		if i > 0 && i == disturbed {
			m.move(t) // cuts are released one store after the other
		}
		s.Release(m.pending.Partitions[i])
	}
	m.pending, m.durable, m.durRev, m.homesDurable = nil, m.atCut, m.cutRev, m.homesAtCut
}

func (m *model) clone() model { return model{slices.Clone(m.changes), m.compacted} }

// crash loses what was not flushed.
func (m *machine) crash(t *rapid.T) {
	m.pending = nil
	if m.path != "" {
		require.NoError(t, m.be.Close())
		be, err := backend.Open(m.path, backend.Options{NoSync: true})
		require.NoError(t, err)
		m.be = be
	}
	m.empty()
	m.homes = m.homesDurable
	require.NoError(t, m.be.Load(m.stores, m.route, nil))
	m.model, m.rev = m.durable.clone(), max(1, m.durRev)
	for i, s := range m.stores {
		index, term := s.Applied()
		require.Equal(t, uint64(m.durRev), index)
		if m.durRev > 0 {
			require.Equal(t, uint64(i+1), term)
		}
		require.Equal(t, m.model.compacted, s.Compacted())
	}
}

func (m *machine) empty() {
	for i := range m.stores {
		m.stores[i] = store.New(m.be)
		if m.windows {
			m.stores[i].Slow()
		} else {
			m.stores[i].Tighten()
		}
	}
}

// settle flushes until nothing is left to do; then the file holds exactly what
// etcd would keep.
func (m *machine) settle(t *rapid.T) {
	m.flush(t)
	for n := 0; ; n++ {
		dirty := false
		for _, s := range m.stores {
			s.RLock()
			dirty = dirty || s.Dirty()
			s.RUnlock()
		}
		if !dirty {
			break
		}
		require.Less(t, n, 2000, "compaction never ends")
		m.cut(t)
		m.flush(t)
	}
	want := m.model.survivors()
	require.NoError(t, m.be.Scan(0, m.rev, func(rev store.Revision, kv kvwire.KeyValue, tombstone bool) bool {
		require.NotEmpty(t, want, "%v should be gone", rev)
		require.Equal(t, want[0].rev, rev)
		require.Equal(t, want[0].tombstone, tombstone)
		equal(t, want[0].kv, kv)
		want = want[1:]
		return true
	}))
	require.Empty(t, want)
	meta, err := m.be.Meta()
	require.NoError(t, err)
	require.Equal(t, m.model.compacted, meta.Compacted)
	require.Equal(t, m.model.compacted, meta.Finished)
}

func (m *machine) readRange(t *rapid.T) {
	key, end := genKey.Draw(t, "from"), genEnd.Draw(t, "end")
	rev := rapid.Int64Range(0, m.rev).Draw(t, "rev")
	limit := rapid.IntRange(0, 4).Draw(t, "limit")
	at := rev
	if rev == 0 {
		at = m.rev
	}
	m.checkSums(t)
	for p, s := range m.stores {
		s.RLock()
		f, err := s.Range([]byte(key), []byte(end), rev, limit)
		n, cerr := s.Count([]byte(key), []byte(end), rev)
		total := s.Bytes()
		s.RUnlock()
		for _, kv := range m.mine(m.model.scan("", "\x00", m.rev), p) {
			total -= int64(kvwire.Of(kv).Len())
		}
		require.Zero(t, total, "bytes of the keys that exist")
		if rev > 0 && rev < m.model.compacted {
			require.ErrorIs(t, err, fault.Compacted)
			require.ErrorIs(t, cerr, fault.Compacted)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, cerr)
		require.NoError(t, s.Resolve(&f))
		want := m.mine(m.model.scan(key, end, at), p)
		require.Equal(t, len(want), f.Count)
		require.Equal(t, len(want), n)
		if limit > 0 && len(want) > limit {
			want = want[:limit]
		}
		require.Len(t, f.Kvs, len(want))
		for i := range want {
			equal(t, want[i], f.Kvs[i])
		}
	}
}

// checkSums compares the sums of all stores together with those of the keys that exist.
func (m *machine) checkSums(t *rapid.T) {
	var have, want store.Sums
	for _, s := range m.stores {
		s.RLock()
		sums := s.Sums()
		s.RUnlock()
		have.Add(&sums)
	}
	for _, kv := range m.model.scan("", "\x00", m.rev) {
		want.With(kvwire.Of(kv))
	}
	require.Equal(t, want, have)
}

func (m *machine) mine(kvs []*mvccpb.KeyValue, p int) (out []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if m.route(kv.Key) == p {
			out = append(out, kv)
		}
	}
	return out
}

func (m *machine) readChanges(t *rapid.T) {
	key, end := genKey.Draw(t, "from"), genEnd.Draw(t, "end")
	from := rapid.Int64Range(0, m.rev).Draw(t, "since")
	bounds := store.Bounds{Changes: rapid.IntRange(0, 4).Draw(t, "changes"), Bytes: rapid.SampledFrom([]int{0, 1, 40, 100}).Draw(t, "bytes")}
	prev := rapid.Bool().Draw(t, "prev")
	for p, s := range m.stores {
		if from < m.model.compacted {
			_, _, err := s.Changes([]byte(key), []byte(end), from, m.rev, bounds, prev)
			require.ErrorIs(t, err, fault.Compacted)
			continue
		}
		var got []store.Change
		for at := from; at <= m.rev; {
			cs, through, err := s.Changes([]byte(key), []byte(end), at, m.rev, bounds, prev)
			require.NoError(t, err)
			require.GreaterOrEqual(t, through, at, "no progress")
			if n := bounds.Changes; n > 0 && len(cs) > n {
				require.Equal(t, cs[n-1].Main, cs[len(cs)-1].Main, "went on after the bound")
			}
			for _, c := range cs {
				require.LessOrEqual(t, c.Main, through)
			}
			got = append(got, cs...)
			at = through + 1
		}
		for _, c := range m.model.changes {
			if c.rev.Main < from || !inRange(string(c.kv.Key), key, end) || m.route(c.kv.Key) != p {
				continue
			}
			require.NotEmpty(t, got, "change %v is missing", c.rev)
			require.Equal(t, c.rev, got[0].Revision)
			require.Equal(t, c.tombstone, got[0].Delete)
			equal(t, c.kv, got[0].Kv)
			switch {
			case c.rev.Main <= m.model.compacted:
				require.False(t, got[0].Prev.Exists(), "what was replaced is gone")
			case prev:
				equal(t, m.model.get(string(c.kv.Key), c.rev.Main-1), got[0].Prev)
			}
			got = got[1:]
		}
		require.Empty(t, got)
	}
}

func (m *machine) readLeases(t *rapid.T) {
	for _, lease := range []int64{7, 8} {
		for p, s := range m.stores {
			var want []string
			for _, kv := range m.mine(m.model.scan("a", "\x00", m.rev), p) {
				if kv.Lease == lease {
					want = append(want, string(kv.Key))
				}
			}
			var got []string
			s.RLock()
			for _, k := range s.LeaseKeys(lease) {
				got = append(got, string(k))
			}
			s.RUnlock()
			require.Equal(t, want, got)
		}
	}
}

func equal(t *rapid.T, want *mvccpb.KeyValue, got kvwire.KeyValue) {
	require.Equal(t, want != nil, got.Exists(), "want %v, got %v", want, got)
	if want != nil {
		require.True(t, proto.Equal(want, got.Message()), "want %v, got %v", want, got)
	}
}

func testModel(t *testing.T, partitions int, onDisk bool) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		id := backend.Identity{Cluster: 1, Server: 2, Partitions: partitions}
		m := &machine{be: backend.NewMem(id), stores: make([]*store.Store, partitions), rev: 1, windows: rapid.Bool().Draw(t, "windows")}
		m.model.compacted, m.durable.compacted = -1, -1
		if onDisk {
			m.path = filepath.Join(dir, fmt.Sprint(n, ".db"))
			var err error
			m.be, err = backend.Open(m.path, backend.Options{Identity: id, NoSync: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, m.be.Close()) }()
		}
		m.empty()
		t.Repeat(map[string]func(*rapid.T){
			"write": m.write, "burst": m.burst, "compact": m.compact,
			"move": m.move, "cut": m.cut, "flush": m.flush, "crash": m.crash, "settle": m.settle,
			"range": m.readRange, "changes": m.readChanges, "leases": m.readLeases,
		})
		m.settle(t)
	})
}

func TestModelOnePartition(t *testing.T)    { testModel(t, 1, false) }
func TestModelThreePartitions(t *testing.T) { testModel(t, 3, false) }
func TestModelOnFile(t *testing.T)          { testModel(t, 2, true) }
