package namespace

import (
	"bytes"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Errors of translations.
var (
	ErrMalformed = errors.New("malformed message")
	ErrUnknown   = errors.New("the request has a field that this release can't translate")
	ErrTooDeep   = errors.New("messages are nested too deeply")
	ErrForeign   = errors.New("the answer has a key outside of the namespace")
)

// Namespace is the keys with a prefix.
type Namespace struct {
	prefix, end []byte
	messages    map[protoreflect.FullName]*message
}

// New makes the namespace of a prefix, which isn't empty.
func New(prefix string) *Namespace {
	return &Namespace{prefix: []byte(prefix), end: []byte(clientv3.GetPrefixRangeEnd(prefix)), messages: map[protoreflect.FullName]*message{}}
}

// Method is the translation of a method's messages.
type Method struct{ Request, Answer *Translation }

// A Translation is that of one message in one direction. It may be used by several goroutines.
type Translation struct {
	of     *message
	change change
}

// Method returns the translation of a method, as in "/etcdserverpb.KV/Range". known is false if this
// release doesn't know the method. It must not be called by several goroutines at a time.
func (n *Namespace) Method(path string) (m Method, known bool) {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return m, false
	}
	s, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return m, false
	}
	d := s.Methods().ByName(protoreflect.Name(method))
	if d == nil {
		return m, false
	}
	m.Request = &Translation{n.message(d.Input()), request{n}}
	m.Answer = &Translation{n.message(d.Output()), answer{n}}
	return m, true
}

// Apply translates an encoded message, which it doesn't change.
func (t *Translation) Apply(b []byte) ([]byte, error) {
	if !t.of.keys {
		return b, nil
	}
	return t.of.rewrite(make([]byte, 0, len(b)+64), b, t.change, maxDepth)
}

// change is a direction.
type change interface {
	// value translates a field. keep is false if it is left out.
	value(r role, v []byte) (out []byte, keep bool, err error)
	// absent is a field that isn't there, and has to be, if any.
	absent(r role) (v []byte, add bool)
	unknown() error
}

type request struct{ n *Namespace }

func (q request) value(r role, v []byte) ([]byte, bool, error) {
	switch {
	case r == end && len(v) == 1 && v[0] == 0:
		return q.n.end, true, nil
	case len(v) == 0:
		if added, ok := q.absent(r); ok {
			return added, true, nil
		}
		return v, true, nil
	}
	return append(q.n.prefix[:len(q.n.prefix):len(q.n.prefix)], v...), true, nil
}

func (q request) absent(r role) ([]byte, bool) {
	switch r {
	case watched:
		return append(q.n.prefix[:len(q.n.prefix):len(q.n.prefix)], 0), true
	case name:
		return q.n.prefix, true
	}
	return nil, false
}

func (request) unknown() error { return ErrUnknown }

type answer struct{ n *Namespace }

func (a answer) value(r role, v []byte) ([]byte, bool, error) {
	rest, ok := bytes.CutPrefix(v, a.n.prefix)
	switch {
	case ok:
		return rest, true, nil
	case r == owned:
		return nil, false, nil
	}
	return nil, false, ErrForeign
}

func (answer) absent(role) ([]byte, bool) { return nil, false }

func (answer) unknown() error { return nil }
