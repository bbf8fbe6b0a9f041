package extension

import (
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/script"
)

// answer turns a handler's return value into the answer to its request.
func (out *Outcome) answer(r *Request, v script.Value, c *call) (err error) {
	if c.waitFor != nil && !v.IsNil() {
		return errors.New("the handler called block and returned a value: it can do one of both")
	}
	switch r.Op {
	case Txn:
		if out.Succeeded = true; v.Kind() == script.BoolKind {
			out.Succeeded, _ = v.AsBool()
			return nil
		}
	case Delete:
		if n, ok := v.AsInt(); ok {
			if n < 0 {
				return fmt.Errorf("the handler of a delete returned %d, which is no number of keys", n)
			}
			out.Deleted = n
			return nil
		}
	}
	if out.Kvs, err = keyValues(r.Key, v, c.limits.Bytes); err != nil {
		return err
	}
	if r.Op == Delete {
		out.Deleted = int64(len(out.Kvs))
	}
	if (r.Op == Put || r.Op == Block) && len(out.Kvs) > 1 {
		return fmt.Errorf("the handler of a %s returned %d values, it can return one", r.Op, len(out.Kvs))
	}
	return nil
}

// keyValues are the key-values that a handler's value stands for: none for nil, one
// under the request's key for a plain value, one for a table with a key, one for
// each element of a list. Fields that the handler doesn't set are left out: their
// revisions are the answer's. They are no larger than limit together, which the
// memory limit of a call doesn't ensure: one string can be the value of all of them.
func keyValues(key []byte, v script.Value, limit int64) ([]*mvccpb.KeyValue, error) {
	if v.IsNil() {
		return nil, nil
	}
	t, ok := v.AsTable()
	if !ok {
		text, err := plain(v)
		if err != nil {
			return nil, err
		}
		return []*mvccpb.KeyValue{{Key: key, Value: text, Version: 1}}, nil
	}
	if !isList(t) {
		kv, err := keyValue(key, t)
		if err != nil {
			return nil, err
		}
		return []*mvccpb.KeyValue{kv}, nil
	}
	kvs := make([]*mvccpb.KeyValue, t.Len())
	for i := range kvs {
		element, ok := t.Index(i + 1).AsTable()
		if !ok {
			return nil, fmt.Errorf("element %d of the returned list is no table with key and value", i+1)
		}
		kv, err := keyValue(key, element)
		if err != nil {
			return nil, fmt.Errorf("element %d of the returned list: %w", i+1, err)
		}
		if limit -= int64(len(kv.Key)+len(kv.Value)) + keyValueBytes; limit < 0 {
			return nil, &script.Error{Reason: "the returned list is larger than the memory of a call", Limit: true}
		}
		kvs[i] = kv
	}
	return kvs, nil
}

// keyValueBytes is about the memory of a key-value beside its key and value.
const keyValueBytes = 128

// keyValue reads a table like those that stat and range return.
func keyValue(key []byte, t *script.Table) (*mvccpb.KeyValue, error) {
	for k := range t.All() {
		name, _ := k.AsString()
		if wrong := answerShape.Wrong(name); wrong != "" {
			return nil, fmt.Errorf("the returned value has a field %s; known are %s", shown(k), answerShape)
		}
	}
	kv := &mvccpb.KeyValue{Key: key, Version: 1}
	if v := t.Field("key"); !v.IsNil() {
		s, ok := v.AsString()
		if !ok || s == "" {
			return nil, errors.New("the key of the returned value is no string")
		}
		kv.Key = []byte(s)
	}
	if v := t.Field("value"); !v.IsNil() {
		text, err := plain(v)
		if err != nil {
			return nil, err
		}
		kv.Value = text
	}
	for _, f := range []struct {
		name string
		to   *int64
	}{
		{"version", &kv.Version}, {"create_revision", &kv.CreateRevision},
		{"mod_revision", &kv.ModRevision}, {"lease", &kv.Lease},
	} {
		v := t.Field(f.name)
		n, ok := v.AsInt()
		switch {
		case v.IsNil():
		case !ok || n < 0:
			return nil, fmt.Errorf("the %s of the returned value is no number", f.name)
		default:
			*f.to = n
		}
	}
	return kv, nil
}

// plain is the text of a string, an integer or a boolean.
func plain(v script.Value) ([]byte, error) {
	if s, ok := v.AsString(); ok {
		return []byte(s), nil
	}
	if n, ok := v.AsInt(); ok {
		return strconv.AppendInt(nil, n, 10), nil
	}
	if b, ok := v.AsBool(); ok {
		return strconv.AppendBool(nil, b), nil
	}
	return nil, fmt.Errorf("a %s can't be a value: give a string, an integer or a boolean", v.Kind())
}
