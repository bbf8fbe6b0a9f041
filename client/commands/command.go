package commands

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/client/mirror"
)

// Op changes one key of one cluster. It has no lease.
type Op struct {
	Cluster int // its place in the set
	mirror.Op
}

// Command is changes that take effect together in each cluster. Of several of one key the last
// one counts.
type Command []Op

// The form of a batch, the value of an entry: a byte that says which, then for each command the
// number of its changes, and each of those as
//
//	cluster << 1 | delete, length of the key, key, and unless it is deleted: length of the value, value
//
// Numbers are unsigned varints.
const form = 1

// ErrForm: the value of an entry can't be read.
var ErrForm = errors.New("a batch of commands can't be read: it is damaged, or was written by a later version")

// ErrNoKey: a change has an empty key.
var ErrNoKey = errors.New("a command has a change without a key")

// Encode makes the value of an entry.
func Encode(batch []Command) []byte {
	b := []byte{form}
	for _, c := range batch {
		b = c.append(b)
	}
	return b
}

func (c Command) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c)))
	for _, op := range c {
		kind := uint64(op.Cluster) << 1
		if op.Delete {
			kind |= 1
		}
		b = appendBytes(binary.AppendUvarint(b, kind), op.Key)
		if !op.Delete {
			b = appendBytes(b, op.Value)
		}
	}
	return b
}

func appendBytes(b, field []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(field))), field...)
}

// Decode reads the value of an entry of a set with so many clusters. What it returns refers to
// the value.
func Decode(value []byte, clusters int) (batch []Command, err error) {
	if len(value) == 0 || value[0] != form {
		return nil, ErrForm
	}
	d := decoder{rest: value[1:]}
	for len(d.rest) > 0 && !d.bad {
		batch = append(batch, d.command(clusters))
	}
	if d.bad {
		return nil, ErrForm
	}
	return batch, nil
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) command(clusters int) (c Command) {
	for n := d.number(); n > 0 && !d.bad; n-- {
		kind := d.number()
		op := Op{Op: mirror.Op{Key: d.bytes(), Delete: kind&1 != 0}}
		if kind>>1 >= uint64(clusters) || len(op.Key) == 0 {
			d.bad = true
			return nil
		}
		op.Cluster = int(kind >> 1)
		if !op.Delete {
			op.Value = d.bytes()
		}
		c = append(c, op)
	}
	return c
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return nil
	}
	field := d.rest[:n:n]
	d.rest = d.rest[n:]
	return field
}

// ErrTooLarge: a command has more changes or bytes than one transaction may have.
var ErrTooLarge = errors.New("the command is too large")

// Check refuses a command that can't be one transaction of each cluster, and one entry; one with an empty key no cluster
// could carry out.
func (c Command) Check(l mirror.Limits) error {
	size, ops := len(c.append(nil)), map[int]int{}
	for _, op := range c {
		if len(op.Key) == 0 {
			return ErrNoKey
		}
		ops[op.Cluster]++
		if n := ops[op.Cluster]; n > l.Ops {
			return fmt.Errorf("%w: it has more than %d changes in one cluster", ErrTooLarge, l.Ops)
		}
	}
	if size > l.Bytes {
		return fmt.Errorf("%w: %d bytes, and %d is the most", ErrTooLarge, size, l.Bytes)
	}
	return nil
}
