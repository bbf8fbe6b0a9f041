package adversary

import (
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Leases of the twins. Their keys are hidden; strange is that of no lease.
const (
	firstLease, secondLease, strangeLease = 1001, 1002, 4711
)

// generator makes requests from their descriptors. Fields get values that mean something to
// servers, by their names, or any.
type generator struct{ *rand.Rand }

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

// message fills a message in. Nesting is bounded.
func (g generator) message(m protoreflect.Message, depth int) {
	switch r := m.Interface().(type) {
	case *stoapb.ClientBatch:
		g.batch(r)
		return
	case *stoapb.Request:
		g.request(r)
		return
	case *pb.LeaseGrantRequest: // of leases that no other request names
		r.ID, r.TTL = pick(g, 0, firstLease, g.Int64()), g.number("TTL")
		return
	}
	if g.IntN(4) == 0 { // as fields that servers know among each other
		field := pick[protowire.Number](g, 999, 1000, 1000, 1001)
		m.SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), uint64(g.IntN(6))))
	}
	oneofs := m.Descriptor().Oneofs()
	for i := range oneofs.Len() {
		if fields := oneofs.Get(i).Fields(); g.IntN(10) > 0 {
			g.field(m, fields.Get(g.IntN(fields.Len())), depth)
		}
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.ContainingOneof() == nil && g.IntN(3) > 0 {
			g.field(m, f, depth)
		}
	}
}

func (g generator) field(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	nested := f.Kind() == protoreflect.MessageKind || f.Kind() == protoreflect.GroupKind
	switch {
	case f.IsMap() || nested && depth == 0:
	case f.IsList():
		list := m.Mutable(f).List()
		for range g.IntN(3) {
			if nested {
				v := list.NewElement()
				g.message(v.Message(), depth-1)
				list.Append(v)
			} else {
				list.Append(g.value(f))
			}
		}
	case nested:
		g.message(m.Mutable(f).Message(), depth-1)
	default:
		m.Set(f, g.value(f))
	}
}

func (g generator) value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(g.IntN(2) == 0)
	case protoreflect.EnumKind:
		if g.IntN(20) == 0 {
			return protoreflect.ValueOfEnum(99)
		}
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(g.IntN(values.Len())).Number())
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(g.number(string(f.Name())))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(g.number(string(f.Name()))))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(g.number(string(f.Name()))))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(g.number(string(f.Name()))))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(g.NormFloat64())
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(g.NormFloat64()))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(g.name())
	}
	return protoreflect.ValueOfBytes(g.key())
}

func (g generator) number(field string) int64 {
	switch field {
	case "ID", "lease", "session":
		return pick[int64](g, firstLease, secondLease, strangeLease, 0, -1)
	case "TTL", "ttl":
		return pick[int64](g, 5, 60, 0, -1, math.MaxInt64)
	}
	return pick[int64](g, 0, 1, 2, 3, 5, 8, 13, 21, 1000, -1, math.MaxInt64, math.MinInt64)
}

func (g generator) name() string {
	return pick(g, nobody, "root", "someone", "someones", "", hiddenExtensions[0], hiddenExtensions[1], "stoa", "\x00", "a/b", "3.6.0", "0.1.0", "rät")
}

func (g generator) key() []byte {
	switch g.IntN(8) {
	case 0:
		b := make([]byte, g.IntN(20))
		for i := range b {
			b[i] = byte(g.Uint32())
		}
		return b
	case 1:
		return []byte("/em/" + g.name() + pick(g, "", "/", "/ack/"+nobody, "/owner"))
	}
	return []byte(pick(g, "", "\x00", "/", "0", "/hidden/", "/hidden0", "/hidden/a/1", "/hidden/b/1", "/hidden/b/7", "/hidden/both", "/called/x", "/called/y",
		"/em/", "/em0", "/em/.limits", "/em/.levels", "/nothing/here", "\xff"))
}

// request is one of a session: with a body of its kind, mostly.
func (g generator) request(r *stoapb.Request) {
	r.Kind = stoapb.Kind(g.IntN(len(stoapb.Kind_name) + 1))
	r.Level, r.Revision = stoapb.Level(g.IntN(4)), pick[int64](g, 0, 0, 0, 1, 5, -1)
	if body := bodies[r.Kind]; body != nil && g.IntN(20) > 0 {
		m := proto.Clone(body)
		g.message(m.ProtoReflect(), 3)
		r.Body, _ = proto.Marshal(m) // a string that isn't UTF-8 leaves it empty
	} else {
		r.Body = g.key()
	}
}

var bodies = map[stoapb.Kind]proto.Message{
	stoapb.Kind_PUT: &pb.PutRequest{}, stoapb.Kind_RANGE: &pb.RangeRequest{}, stoapb.Kind_DELETE_RANGE: &pb.DeleteRangeRequest{},
	stoapb.Kind_TXN: &pb.TxnRequest{}, stoapb.Kind_WATCH: &pb.WatchCreateRequest{}, stoapb.Kind_CANCEL: &pb.WatchCancelRequest{},
}

// batch is the first message of a stream, mostly: it opens a session, or tries to take one up.
func (g generator) batch(b *stoapb.ClientBatch) {
	if g.IntN(10) > 0 {
		b.Open = &stoapb.OpenSession{
			Session: pick[int64](g, 0, 0, 0, firstLease, strangeLease), Ttl: pick[int64](g, 0, 5, 60), Next: pick[uint64](g, 0, 0, 1, 7),
			Revision: pick[int64](g, 0, 0, 1, 5), Client: pick(g, "", "", nobody, nobody+"/1", "root", "someone"), PartitionMap: g.IntN(2) == 0,
		}
		for i := range g.IntN(3) {
			w := &stoapb.Request{Seq: uint64(i + 1), Kind: stoapb.Kind_WATCH, Level: stoapb.Level(g.IntN(3))}
			m := &pb.WatchCreateRequest{}
			g.message(m.ProtoReflect(), 2)
			w.Body, _ = proto.Marshal(m)
			b.Open.Watches = append(b.Open.Watches, w)
			b.Open.Next = 7
		}
	}
	seq := max(b.GetOpen().GetNext(), 1)
	for range 1 + g.IntN(6) {
		r := &stoapb.Request{}
		g.request(r)
		r.Seq = seq
		if g.IntN(30) > 0 {
			seq++
		}
		b.Requests = append(b.Requests, r)
	}
}
