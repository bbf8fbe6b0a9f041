package mirror

import (
	"bytes"
	"context"
)

// page returns one page of keys, as Source.Page does.
type page func(ctx context.Context, from []byte) (kvs []KV, next []byte, err error)

// cursor reads all keys of one side, in order.
type cursor struct {
	read page
	kvs  []KV
	next []byte
	end  bool
}

func newCursor(read page) *cursor { return &cursor{read: read, next: []byte{}} }

// peek returns the next key without moving on, nil behind the last.
func (c *cursor) peek(ctx context.Context) (*KV, error) {
	for len(c.kvs) == 0 && !c.end {
		var err error
		if c.kvs, c.next, err = c.read(ctx, c.next); err != nil {
			return nil, err
		}
		c.end = c.next == nil
	}
	if len(c.kvs) == 0 {
		return nil, nil
	}
	return &c.kvs[0], nil
}

func (c *cursor) skip() { c.kvs = c.kvs[1:] }

// merge calls fn for each key of two sides, in order, with nil for a side that lacks it.
func merge(ctx context.Context, a, b *cursor, fn func(a, b *KV) error) error {
	for {
		x, err := a.peek(ctx)
		if err != nil {
			return err
		}
		y, err := b.peek(ctx)
		if err != nil {
			return err
		}
		if x == nil && y == nil {
			return nil
		}
		if x != nil && y != nil {
			switch cmp := bytes.Compare(x.Key, y.Key); {
			case cmp < 0:
				y = nil
			case cmp > 0:
				x = nil
			}
		}
		if err := fn(x, y); err != nil {
			return err
		}
		if x != nil {
			a.skip()
		}
		if y != nil {
			b.skip()
		}
	}
}

// repair returns the operation that makes a key of the target what it is in the source; false
// if it is that. In the target it has no lease.
func repair(source, target *KV) (Op, bool) {
	switch {
	case source == nil:
		return Op{Key: target.Key, Delete: true}, true
	case target == nil || target.Lease != 0 || !bytes.Equal(source.Value, target.Value):
		return Op{Key: source.Key, Value: source.Value}, true
	}
	return Op{}, false
}
