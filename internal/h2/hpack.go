package h2

import (
	"errors"
	"slices"

	"golang.org/x/net/http2/hpack"
)

const (
	tableSize   = 4096 // bytes of a table, HTTP/2's default; none other is announced
	fieldWeight = 32   // what a field counts for beside its bytes, RFC 7541 §4.1

	maxInterned  = 190 // fields, so that their ids and those of the static table fit a byte
	internedSize = 16 << 10
	internedOne  = 2 << 10
)

// entry is a field of a table. Fields of the same id have the same name and value, whenever they
// come, until the ids are given anew (table.epoch); 0 is the id of those that are too large.
type entry struct {
	name, value string
	id          byte
}

func (e *entry) size() int { return len(e.name) + len(e.value) + fieldWeight }

// timeoutID is the id of all grpc-timeout fields: their values differ from call to call.
const timeoutID = 255

// static is the static table, RFC 7541 Appendix A.
var static = func() (all []entry) {
	d := hpack.NewDecoder(0, nil)
	for i := byte(1); i <= 61; i++ {
		f, err := d.DecodeFull([]byte{0x80 | i})
		if err != nil {
			panic(err)
		}
		all = append(all, entry{f[0].Name, f[0].Value, i})
	}
	return all
}()

// table is a connection's dynamic table, and the ids of the fields that it has seen.
type table struct {
	entries  []entry // the newest last
	size     int     // of them
	limit    int
	longest  int // bytes of a string
	interned []entry
	weight   int // of interned
	epoch    int
}

var (
	errTruncated = errors.New("a header block is truncated")
	errInteger   = errors.New("an integer of a header block is too large")
	errIndex     = errors.New("a header block refers to nothing")
	errLong      = errors.New("a string of a header block is too long")
	errResize    = errors.New("a size of the table is too large, or not at the beginning of a header block")
)

// fields calls emit for the fields of a header block. After an error the table is of no use.
func (t *table) fields(block []byte, emit func(entry)) error {
	for begun := false; len(block) > 0; {
		var e entry
		var err error
		switch b := block[0]; {
		case b >= 0x80:
			var i int
			if i, block, err = integer(block, 7); err != nil {
				return err
			}
			p := t.at(i)
			if p == nil {
				return errIndex
			}
			emit(*p)
			begun = true
			continue
		case b >= 0x40:
			if e, block, err = t.literal(block, 6); err == nil {
				e = t.intern(e)
				t.add(e)
			}
		case b >= 0x20:
			if begun {
				return errResize
			}
			if t.limit, block, err = integer(block, 5); err == nil && t.limit > tableSize {
				err = errResize
			}
			if err != nil {
				return err
			}
			t.evict()
			continue
		default:
			if e, block, err = t.literal(block, 4); err == nil {
				e = t.intern(e)
			}
		}
		if err != nil {
			return err
		}
		emit(e)
		begun = true
	}
	return nil
}

// at returns the field of an index, or nil.
func (t *table) at(i int) *entry {
	switch n := len(static); {
	case i <= 0 || i > n+len(t.entries):
		return nil
	case i <= n:
		return &static[i-1]
	default:
		return &t.entries[len(t.entries)-(i-n)]
	}
}

func (t *table) add(e entry) {
	t.entries = append(t.entries, e)
	t.size += e.size()
	t.evict()
}

func (t *table) evict() {
	n := 0
	for ; t.size > t.limit; n++ {
		t.size -= t.entries[n].size()
	}
	if n > 0 {
		t.entries = slices.Delete(t.entries, 0, n)
	}
}

// intern gives a field its id.
func (t *table) intern(e entry) entry {
	if e.name == "grpc-timeout" {
		e.id = timeoutID
		return e
	}
	for i := range t.interned {
		if have := &t.interned[i]; have.value == e.value && have.name == e.name {
			return *have
		}
	}
	if len(t.interned) == maxInterned || t.weight > internedSize {
		t.renumber()
	}
	return t.number(e)
}

// renumber gives ids anew, to the fields of the table.
func (t *table) renumber() {
	t.epoch++
	t.interned, t.weight = make([]entry, 0, len(t.entries)), 0
	for i := range t.entries {
		if e := &t.entries[i]; e.id != timeoutID {
			*e = t.number(*e)
		}
	}
}

// number gives a field the next id.
func (t *table) number(e entry) entry {
	e.id = 0
	if e.size() <= internedOne {
		e.id = byte(len(static) + 1 + len(t.interned))
		t.interned = append(t.interned, e)
		t.weight += e.size()
	}
	return e
}

// literal reads a field whose name is an index of n bits or a string.
func (t *table) literal(b []byte, n uint) (e entry, rest []byte, err error) {
	i, rest, err := integer(b, n)
	if err != nil {
		return e, nil, err
	}
	if i == 0 {
		e.name, rest, err = t.text(rest)
	} else if p := t.at(i); p != nil {
		e.name = p.name
	} else {
		err = errIndex
	}
	if err == nil {
		e.value, rest, err = t.text(rest)
	}
	return e, rest, err
}

// text reads a string (§5.2).
func (t *table) text(b []byte) (string, []byte, error) {
	if len(b) == 0 {
		return "", nil, errTruncated
	}
	compressed := b[0] >= 0x80
	n, b, err := integer(b, 7)
	switch {
	case err != nil:
		return "", nil, err
	case n > t.longest:
		return "", nil, errLong
	case n > len(b):
		return "", nil, errTruncated
	case !compressed:
		return string(b[:n]), b[n:], nil
	}
	s, err := hpack.HuffmanDecodeToString(b[:n])
	if len(s) > t.longest {
		err = errLong
	}
	return s, b[n:], err
}

// integer reads one with a prefix of n bits (§5.1), of up to 28 bits more.
func integer(b []byte, n uint) (int, []byte, error) {
	most := 1<<n - 1
	if len(b) == 0 {
		return 0, nil, errTruncated
	}
	v, b := int(b[0])&most, b[1:]
	if v < most {
		return v, b, nil
	}
	for shift := 0; shift < 28; shift += 7 {
		if len(b) == 0 {
			return 0, nil, errTruncated
		}
		c := b[0]
		b = b[1:]
		v += int(c&127) << shift
		if c < 128 {
			return v, b, nil
		}
	}
	return 0, nil, errInteger
}
