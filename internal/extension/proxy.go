package extension

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/script"
)

// host is the state proxy: all that a handler can reach beside the language.
var host = []script.Function{
	{Name: "get", Min: 1, Max: 1, Do: do((*call).get)},
	{Name: "stat", Min: 1, Max: 1, Do: do((*call).stat)},
	{Name: "put", Min: 2, Max: 3, Do: do((*call).put)},
	{Name: "create", Min: 2, Max: 3, Do: do((*call).create)},
	{Name: "cas", Min: 3, Max: 3, Do: do((*call).cas)},
	{Name: "delete", Min: 1, Max: 1, Do: do((*call).delete)},
	{Name: "range", Min: 1, Max: 2, Do: do((*call).scan)},
	{Name: "children", Min: 1, Max: 2, Do: do((*call).children)},
	{Name: "count", Min: 1, Max: 1, Do: do((*call).count)},
	{Name: "block", Min: 1, Max: 1, Do: do((*call).waitForKey)},
	{Name: "monitor", Min: 2, Max: 3, Do: do((*call).monitor)},
	{Name: "notify", Min: 2, Max: 2, Do: do((*call).notify)},
	{Name: "suppress", Min: 0, Max: 0, Do: do((*call).suppress)},
	{Name: "revision", Min: 0, Max: 0, Do: do((*call).revision)},
	{Name: "client", Min: 0, Max: 0, Do: do((*call).clientID)},
	{Name: "log", Min: 1, Max: -1, Do: do((*call).log)},
}

// arguments are those of one call of the proxy.
type arguments struct {
	*script.Call
	list []script.Value
}

func do(f func(*call, arguments) (script.Value, error)) func(*script.Call, []script.Value) (script.Value, error) {
	return func(c *script.Call, args []script.Value) (script.Value, error) {
		return f(c.Host().(*call), arguments{c, args})
	}
}

// Prices in steps, beside those of the call and its arguments; see package script.
const (
	operationSteps = 16 // an operation on a key
	writeSteps     = 16 // a write or a notice
	rangeSteps     = 20 // finding where a range begins
	scanSteps      = 8  // each key that the call has written itself, in a range
	countSteps     = 1  // each of them in a count
	sortSteps      = 2  // each comparison of such keys
	scopeShift     = 2  // so many patterns of the scope to a step
)

func exceeded(format string, limit int) error {
	return &script.Error{Reason: fmt.Sprintf(format, limit), Limit: true}
}

// operations charges n operations on keys.
func (c *call) operations(a arguments, n int) error {
	if c.used += n; c.used > c.limits.Operations {
		return exceeded("more than %d operations on keys", c.limits.Operations)
	}
	return a.Charge(int64(n)*operationSteps, 0)
}

// name reads argument i as a key of the scope.
//
// The result shares the script's memory, and may be a part of a larger string.
func (c *call) name(a arguments, i int) ([]byte, error) {
	key, ok := a.list[i].AsBytes()
	switch {
	case !ok:
		return nil, fmt.Errorf("argument %d must be a key, is a %s", i+1, a.list[i].Kind())
	case len(key) == 0:
		return nil, fmt.Errorf("argument %d is an empty key", i+1)
	}
	if err := a.Charge(int64(len(key)/64+len(c.e.Scope)>>scopeShift), 0); err != nil {
		return nil, err
	}
	if text, _ := a.list[i].AsString(); !c.e.inScope(text) {
		return nil, fmt.Errorf("%q is outside the extension's scope", text[:min(len(text), maxPattern)])
	}
	return key, nil
}

// permit refuses an operation that the call's user has no permission for. It ends the call:
// the script can't go on as if the operation had found nothing.
func (c *call) permit(key, end []byte, write bool) error {
	if c.keys.base.Permits(key, end, write) {
		return nil
	}
	c.denied = true
	return errDenied
}

var errDenied = errors.New("permission denied")

// work charges for reading so many bytes, at the price of built-in functions.
func (a arguments) work(bytes int) error { return a.Charge(int64(bytes/64), 0) }

// text reads argument i as a value, which may be the script's own memory.
func (a arguments) text(i int) ([]byte, error) {
	if b, ok := a.list[i].AsBytes(); ok {
		return b, a.work(len(b))
	}
	if n, ok := a.list[i].AsInt(); ok {
		return strconv.AppendInt(nil, n, 10), nil
	}
	return nil, fmt.Errorf("argument %d must be a string or an integer, is a %s", i+1, a.list[i].Kind())
}

// number reads the optional argument i.
func (a arguments) number(i int, missing int64) (int64, error) {
	if i >= len(a.list) || a.list[i].IsNil() {
		return missing, nil
	}
	n, ok := a.list[i].AsInt()
	if !ok || n < 0 {
		return 0, fmt.Errorf("argument %d must be a number that isn't negative", i+1)
	}
	return n, nil
}

// lookup is get and stat.
func (c *call) lookup(a arguments) (kvwire.KeyValue, error) {
	key, err := c.name(a, 0)
	if err != nil {
		return kvwire.KeyValue{}, err
	}
	if err := c.operations(a, 1); err != nil {
		return kvwire.KeyValue{}, err
	}
	if err := c.permit(key, nil, false); err != nil {
		return kvwire.KeyValue{}, err
	}
	return c.keys.get(key), nil
}

func (c *call) get(a arguments) (script.Value, error) {
	kv, err := c.lookup(a)
	if !kv.Exists() {
		return script.Nil(), err
	}
	return text(kv.Value()), nil
}

func (c *call) stat(a arguments) (script.Value, error) {
	kv, err := c.lookup(a)
	if !kv.Exists() {
		return script.Nil(), err
	}
	return a.stat(kv)
}

// stat is a key-value as a table.
func (a arguments) stat(kv kvwire.KeyValue) (script.Value, error) {
	return a.NewRecord(stateShape,
		script.Field{Name: "key", Value: text(kv.Key())},
		script.Field{Name: "value", Value: text(kv.Value())},
		script.Field{Name: "version", Value: script.Int(kv.Version())},
		script.Field{Name: "create_revision", Value: script.Int(kv.CreateRevision())},
		script.Field{Name: "mod_revision", Value: script.Int(kv.ModRevision())},
		script.Field{Name: "lease", Value: script.Int(kv.Lease())},
	)
}

// writeBytes is the cost of a write beside its key and value.
const writeBytes = 512

// write puts a key after everything has been charged.
func (c *call) write(a arguments, key, value []byte, lease int64) error {
	if lease != 0 && !c.keys.base.HasLease(key, lease) {
		return fmt.Errorf("lease %x does not exist", lease)
	}
	if err := c.writing(a, key, len(value)); err != nil {
		return err
	}
	c.keys.put(key, value, lease)
	return nil
}

// writing charges a write of a key. The overlay has the key twice.
func (c *call) writing(a arguments, key []byte, value int) error {
	if err := c.permit(key, nil, true); err != nil {
		return err
	}
	if l := c.limits.Keys; len(c.keys.writes) >= l && c.keys.byKey[string(key)] == nil {
		return exceeded("more than %d keys written", l)
	}
	return c.sending(a, len(key)+value, len(key))
}

// sending charges for a write or a notice, and for the part of it that is kept twice.
func (c *call) sending(a arguments, bytes, twice int) error {
	if l := c.limits.WriteBytes; c.keys.written+bytes > l {
		return exceeded("more than %d bytes written", l)
	}
	c.keys.written += bytes
	if err := a.Charge(writeSteps, writeBytes); err != nil {
		return err
	}
	return a.Allocate(int64(bytes + twice))
}

func (c *call) put(a arguments) (script.Value, error) {
	_, err := c.store(a, 0, nil)
	return script.Nil(), err
}

func (c *call) create(a arguments) (script.Value, error) {
	done, err := c.store(a, 0, func(old kvwire.KeyValue) bool { return !old.Exists() })
	return script.Bool(done), err
}

// monitor ties a key to the client's lease (Table 2, monitor).
func (c *call) monitor(a arguments) (script.Value, error) {
	if c.lease == 0 && (len(a.list) < 3 || a.list[2].IsNil()) {
		return script.Nil(), errors.New("monitor needs a lease: the request has none; give it as the third argument, or call with a lease")
	}
	_, err := c.store(a, c.lease, nil)
	return script.Nil(), err
}

// store writes (key, value, lease) if the present value allows it; nil: whatever it is.
func (c *call) store(a arguments, lease int64, allowed func(old kvwire.KeyValue) bool) (bool, error) {
	key, err := c.name(a, 0)
	if err != nil {
		return false, err
	}
	value, err := a.text(1)
	if err != nil {
		return false, err
	}
	if lease, err = a.number(2, lease); err != nil {
		return false, err
	}
	if err := c.operations(a, 1); err != nil {
		return false, err
	}
	if allowed != nil {
		if err := c.permit(key, nil, false); err != nil {
			return false, err
		}
		if !allowed(c.keys.get(key)) {
			return false, nil
		}
	}
	return true, c.write(a, key, value, lease)
}

// cas replaces a value by another one if it equals the caller's expectation; nil stands
// for a key that doesn't exist. The key keeps its lease.
func (c *call) cas(a arguments) (script.Value, error) {
	key, err := c.name(a, 0)
	if err != nil {
		return script.Nil(), err
	}
	value, err := a.text(2)
	if err != nil {
		return script.Nil(), err
	}
	if err := c.operations(a, 1); err != nil {
		return script.Nil(), err
	}
	if err := c.permit(key, nil, false); err != nil {
		return script.Nil(), err
	}
	old := c.keys.get(key)
	if a.list[1].IsNil() || !old.Exists() {
		if old.Exists() || !a.list[1].IsNil() {
			return script.Bool(false), nil
		}
		return script.Bool(true), c.write(a, key, value, 0)
	}
	want, err := a.text(1)
	if err != nil || string(want) != string(old.Value()) {
		return script.Bool(false), err
	}
	return script.Bool(true), c.write(a, key, value, old.Lease())
}

func (c *call) delete(a arguments) (script.Value, error) {
	kv, err := c.lookup(a)
	if err != nil || !kv.Exists() {
		return script.Bool(false), err
	}
	if err := c.writing(a, kv.Key(), 0); err != nil {
		return script.Nil(), err
	}
	c.keys.delete(kv.Key())
	return script.Bool(true), nil
}

// waitForKey makes the client wait for a key's creation (Table 2, block). The
// handler itself goes on (§6.1.3).
func (c *call) waitForKey(a arguments) (script.Value, error) {
	if !c.block {
		return script.Nil(), errors.New("block can only be called by the handler of a block")
	}
	key, err := c.name(a, 0)
	if err != nil {
		return script.Nil(), err
	}
	if err := c.permit(key, nil, false); err != nil {
		return script.Nil(), err
	}
	c.waitFor = bytes.Clone(key)
	return script.Nil(), nil
}

func (c *call) notify(a arguments) (script.Value, error) {
	key, err := c.name(a, 0)
	if err != nil {
		return script.Nil(), err
	}
	value, err := a.text(1)
	if err != nil {
		return script.Nil(), err
	}
	if err := c.operations(a, 1); err != nil {
		return script.Nil(), err
	}
	if err := c.permit(key, nil, true); err != nil {
		return script.Nil(), err
	}
	if err := c.sending(a, len(key)+len(value), 0); err != nil {
		return script.Nil(), err
	}
	c.notices = append(c.notices, Notice{bytes.Clone(key), bytes.Clone(value)})
	return script.Nil(), nil
}

func (c *call) suppress(arguments) (script.Value, error) {
	if !c.event {
		return script.Nil(), errors.New("suppress can only be called by the handler of an event")
	}
	c.hidden = true
	return script.Nil(), nil
}

func (c *call) revision(arguments) (script.Value, error) { return script.Int(c.keys.rev), nil }

func (c *call) clientID(arguments) (script.Value, error) { return script.String(c.client), nil }
