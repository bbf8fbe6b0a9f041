package namespace

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/stoa-kv/stoa/internal/protofield"
)

// maxDepth bounds how deep messages may be nested: a transaction in another one is two deeper.
const maxDepth = 256

// message is what is known of a kind of message.
type message struct {
	fields map[protowire.Number]field
	roles  []protowire.Number // of the fields with a role, in order
	keys   bool               // it has keys, or messages in it have
}

type field struct {
	role  role
	sub   *message // nil: no message
	types []protowire.Type
}

func (n *Namespace) message(d protoreflect.MessageDescriptor) *message {
	if m := n.messages[d.FullName()]; m != nil {
		return m
	}
	m := &message{fields: map[protowire.Number]field{}, keys: hasKeys(d, nil)}
	n.messages[d.FullName()] = m // before its fields: messages may be recursive
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := field{role: roles[fd.FullName()], types: wireTypes(fd)}
		if fd.Message() != nil {
			f.sub = n.message(fd.Message())
		}
		if f.role != other {
			m.roles = append(m.roles, fd.Number())
		}
		m.fields[fd.Number()] = f
	}
	return m
}

func hasKeys(d protoreflect.MessageDescriptor, above []protoreflect.FullName) bool {
	if slices.Contains(above, d.FullName()) {
		return false
	}
	above = append(above, d.FullName())
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if roles[fd.FullName()] != other || fd.Message() != nil && hasKeys(fd.Message(), above) {
			return true
		}
	}
	return false
}

// wireTypes are those by which a field may be encoded; with another one it is an unknown field.
func wireTypes(fd protoreflect.FieldDescriptor) []protowire.Type {
	t := protowire.VarintType
	switch fd.Kind() {
	case protoreflect.BytesKind, protoreflect.StringKind, protoreflect.MessageKind:
		return []protowire.Type{protowire.BytesType}
	case protoreflect.GroupKind:
		return []protowire.Type{protowire.StartGroupType}
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		t = protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		t = protowire.Fixed64Type
	}
	if fd.IsList() {
		return []protowire.Type{t, protowire.BytesType} // the latter if it is packed
	}
	return []protowire.Type{t}
}

// rewrite appends a translated message.
func (m *message) rewrite(out, b []byte, c change, depth int) ([]byte, error) {
	if depth == 0 {
		return nil, ErrTooDeep
	}
	var seen protowire.Number // the numbers of fields with a role are small: a set of bits
	for at, err := range protofield.All(b) {
		if err != nil {
			return nil, ErrMalformed
		}
		f, ok := m.fields[at.Number]
		if !ok || !slices.Contains(f.types, at.Type) {
			if err := c.unknown(); err != nil {
				return nil, err
			}
			out = append(out, at.Whole...)
			continue
		}
		if f.role != other {
			seen |= 1 << at.Number
		}
		if out, err = f.rewrite(out, at, c, depth); err != nil {
			return nil, err
		}
	}
	for _, number := range m.roles {
		if v, add := c.absent(m.fields[number].role); add && seen&(1<<number) == 0 {
			out = appendField(out, number, v)
		}
	}
	return out, nil
}

// rewrite appends one field.
func (f field) rewrite(out []byte, at protofield.Field, c change, depth int) ([]byte, error) {
	switch {
	case f.role != other:
		v, keep, err := c.value(f.role, at.Bytes)
		if err != nil || !keep {
			return out, err
		}
		return appendField(out, at.Number, v), nil
	case f.sub == nil || !f.sub.keys:
		return append(out, at.Whole...), nil
	}
	out = protowire.AppendTag(out, at.Number, protowire.BytesType)
	begin := len(out)
	out, err := f.sub.rewrite(out, at.Bytes, c, depth-1)
	if err != nil {
		return nil, err
	}
	n := len(out) - begin
	size := protowire.SizeVarint(uint64(n))
	out = slices.Grow(out, size)[:len(out)+size]
	copy(out[begin+size:], out[begin:begin+n])
	protowire.AppendVarint(out[:begin], uint64(n))
	return out, nil
}

func appendField(out []byte, number protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(out, number, protowire.BytesType), v)
}
