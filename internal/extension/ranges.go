package extension

import (
	"bytes"
	"fmt"
	"math/bits"
	"strings"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/script"
)

// span is the keys that begin with a prefix.
type span struct {
	key, end []byte
	written  []*pending // by the call itself
}

// below reads argument 0 as a prefix, and charges for finding where its keys begin and
// for each that the call has written there itself.
func (c *call) below(a arguments, written int64) (s span, err error) {
	prefix, err := c.name(a, 0)
	if err != nil {
		return s, err
	}
	if !c.e.prefixInScope(string(prefix)) {
		return s, fmt.Errorf("not all keys that begin with %q are in the extension's scope", prefix)
	}
	s.key, s.end = prefix, behind(prefix)
	if err := c.permit(s.key, s.end, false); err != nil {
		return s, err
	}
	if err := c.ordering(a, len(prefix)); err != nil {
		return s, err
	}
	c.keys.order()
	s.written = c.keys.within(s.key, s.end)
	return s, a.Charge(int64(len(s.written))*written, 0)
}

// behind is the first key that doesn't begin with a prefix.
func behind(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			break
		}
		end = end[:i]
	}
	return end
}

// ordering charges for bringing the call's writes in order and finding a prefix among
// them.
func (c *call) ordering(a arguments, prefix int) error {
	recent, all := len(c.keys.writes)-len(c.keys.ordered), len(c.keys.writes)
	memory := prefix + spanBytes
	steps := rangeSteps + bits.Len(uint(all))*(sortSteps+prefix/32)
	if recent > 0 {
		depth := bits.Len(uint(recent))
		memory += (recent + all) * pointerBytes
		steps += recent*depth*sortSteps + all + c.keys.keyBytes/64*(depth+1)
	}
	if err := a.Charge(int64(steps), 0); err != nil {
		return err
	}
	return a.Allocate(int64(memory))
}

// prefixInScope tells whether every key that begins so is in the scope.
func (e *Extension) prefixInScope(prefix string) bool {
	for _, p := range e.Scope {
		if p.IsPrefix() && strings.HasPrefix(prefix, string(p)) {
			return true
		}
	}
	return false
}

// The cost of finding a range, and of the lists inside.
const spanBytes, pointerBytes, kvBytes = 64, 8, 16

// fetch reads up to the limit in argument 1 of the keys below a prefix.
func (c *call) fetch(a arguments) (kvs []kvwire.KeyValue, prefix int, err error) {
	s, err := c.below(a, scanSteps)
	if err != nil {
		return nil, 0, err
	}
	if err := a.Allocate(int64(len(s.written)) * 4 * kvBytes); err != nil {
		return nil, 0, err
	}
	left := int64(c.limits.Operations - c.used)
	limit, err := a.number(1, left+1)
	if err != nil {
		return nil, 0, err
	}
	if limit == 0 { // none, as in etcd
		limit = left + 1
	}
	// One more than may be returned, to see that there are too many.
	kvs = c.keys.scan(s.key, s.end, int(min(limit, left+1)), s.written)
	if err := c.operations(a, max(1, len(kvs))); err != nil {
		return nil, 0, err
	}
	lists := 1
	if len(s.written) > 0 { // merged into another one
		lists = 2
	}
	return kvs, len(s.key), a.Allocate(int64(lists*len(kvs)) * kvBytes)
}

// scan returns the keys below a prefix, in order (Table 2, subObjects).
func (c *call) scan(a arguments) (script.Value, error) {
	kvs, _, err := c.fetch(a)
	if err != nil {
		return script.Nil(), err
	}
	t, err := a.NewTable(len(kvs), 0)
	if err != nil {
		return script.Nil(), err
	}
	for _, kv := range kvs {
		v, err := a.stat(kv)
		if err != nil {
			return script.Nil(), err
		}
		if err := t.Append(a.Call, v); err != nil {
			return script.Nil(), err
		}
	}
	return t.Value(), nil
}

// children returns the names one level below a prefix, each once.
func (c *call) children(a arguments) (script.Value, error) {
	kvs, prefix, err := c.fetch(a)
	if err != nil {
		return script.Nil(), err
	}
	t, err := a.NewTable(len(kvs), 0)
	if err != nil {
		return script.Nil(), err
	}
	var last []byte
	for i, kv := range kvs {
		if err := a.work(len(kv.Key())); err != nil {
			return script.Nil(), err
		}
		name, _, _ := bytes.Cut(kv.Key()[prefix:], []byte("/"))
		if i > 0 && bytes.Equal(name, last) {
			continue
		}
		if err := t.Append(a.Call, text(name)); err != nil {
			return script.Nil(), err
		}
		last = name
	}
	return t.Value(), nil
}

func (c *call) count(a arguments) (script.Value, error) {
	s, err := c.below(a, countSteps)
	if err != nil {
		return script.Nil(), err
	}
	if err := c.operations(a, 1); err != nil {
		return script.Nil(), err
	}
	return script.Int(int64(c.keys.count(s.key, s.end, s.written))), nil
}
