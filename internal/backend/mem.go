package backend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/tidwall/btree"
)

// mem is the engine without a file. A reader's state is a copy-on-write copy
// of the trees, so it is as consistent as bbolt's.
type mem struct {
	mu   sync.Mutex
	data memTx
}

type memTx map[string]*btree.Map[string, []byte]

func (m *mem) copy() memTx {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data.copy()
}

func (t memTx) copy() memTx {
	c := make(memTx, len(t))
	for name, b := range t {
		c[name] = b.Copy()
	}
	return c
}

func (m *mem) view(fn func(reader) error) error { return fn(m.copy()) }

func (m *mem) update(fn func(writer) error) error {
	t := m.copy()
	if err := fn(t); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = t
	return nil
}

func (m *mem) forget() {}

func (m *mem) size() (total, inUse int64) {
	for _, b := range m.copy() {
		b.Scan(func(k string, v []byte) bool {
			total += int64(len(k) + len(v))
			return true
		})
	}
	return total, total
}

func (m *mem) defragment() error { return nil }
func (m *mem) close() error      { return nil }

func (t memTx) buckets() []string { return slices.Sorted(maps.Keys(t)) }

func (t memTx) get(bucket string, key []byte) []byte {
	if t[bucket] == nil {
		return nil
	}
	v, _ := t[bucket].Get(string(key))
	return v
}

func (t memTx) ascend(bucket string, from []byte, fn func(k, v []byte) bool) {
	if t[bucket] == nil {
		return
	}
	t[bucket].Ascend(string(from), func(k string, v []byte) bool { return fn([]byte(k), v) })
}

func (t memTx) create(bucket string) error {
	if t[bucket] == nil {
		t[bucket] = &btree.Map[string, []byte]{}
	}
	return nil
}

func (t memTx) put(bucket string, key, value []byte) error {
	if t[bucket] == nil {
		return fmt.Errorf("bucket %q is missing", bucket)
	}
	v := append([]byte{}, value...)
	t[bucket].Set(string(key), v)
	return nil
}

func (t memTx) remove(bucket string, key []byte) error {
	if t[bucket] != nil {
		t[bucket].Delete(string(key))
	}
	return nil
}

// memSnapshot writes the trees as lengths and bytes: only ReadMem reads it.
type memSnapshot struct{ data memTx }

func (m *mem) snapshot() (engineSnapshot, error) { return memSnapshot{m.copy()}, nil }

func (s memSnapshot) reader() reader { return s.data }
func (s memSnapshot) size() int64    { return int64(len(s.encode())) }
func (s memSnapshot) close() error   { return nil }

func (s memSnapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s.encode())
	return int64(n), err
}

const memMagic = "stoa mem 1\n"

func (s memSnapshot) encode() []byte {
	out := []byte(memMagic)
	add := func(b []byte) {
		out = binary.AppendUvarint(out, uint64(len(b)))
		out = append(out, b...)
	}
	for _, name := range s.data.buckets() {
		add([]byte(name))
		out = binary.AppendUvarint(out, uint64(s.data[name].Len()))
		s.data[name].Scan(func(k string, v []byte) bool {
			add([]byte(k))
			add(v)
			return true
		})
	}
	return out
}

var errMemSnapshot = errors.New("not the snapshot of a backend in memory")

// decodeMem reads what encode wrote.
func decodeMem(raw []byte) (memTx, error) {
	raw, ok := bytes.CutPrefix(raw, []byte(memMagic))
	if !ok {
		return nil, errMemSnapshot
	}
	bad := false
	num := func() uint64 {
		v, n := binary.Uvarint(raw)
		if n <= 0 {
			bad, raw = true, nil
			return 0
		}
		raw = raw[n:]
		return v
	}
	field := func() []byte {
		n := num()
		if bad || n > uint64(len(raw)) {
			bad, raw = true, nil
			return nil
		}
		f := raw[:n:n]
		raw = raw[n:]
		return f
	}
	t := memTx{}
	for len(raw) > 0 {
		b := &btree.Map[string, []byte]{}
		t[string(field())] = b
		for n := num(); n > 0 && !bad; n-- {
			k := field()
			b.Set(string(k), append([]byte{}, field()...))
		}
	}
	if bad {
		return nil, errMemSnapshot
	}
	return t, nil
}
