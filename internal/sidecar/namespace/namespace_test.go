package namespace

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/lockpb"
)

func method(t require.TestingT, n *Namespace, path string) Method {
	m, known := n.Method(path)
	require.True(t, known, path)
	return m
}

// translate applies a translation to a message of the same type.
func translate[M proto.Message](t require.TestingT, tr *Translation, in, out M) M {
	b, err := proto.Marshal(in)
	require.NoError(t, err)
	b, err = tr.Apply(b)
	require.NoError(t, err)
	require.NoError(t, proto.Unmarshal(b, out))
	return out
}

func requireEqual(t *testing.T, want, got proto.Message) {
	t.Helper()
	require.True(t, proto.Equal(want, got), "want %v\ngot  %v", want, got)
}

func TestRequests(t *testing.T) {
	n := New("/app/")
	ranged := func(key, end string) *pb.RangeRequest {
		return &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end), Limit: 7}
	}
	r := method(t, n, pb.KV_Range_FullMethodName).Request
	for _, c := range [][4]string{
		{"a", "", "/app/a", ""}, {"a", "b", "/app/a", "/app/b"}, {"a", "\x00", "/app/a", "/app0"}, {"\x00", "\x00", "/app/\x00", "/app0"},
		{"a", "\x00\x00", "/app/a", "/app/\x00\x00"}, {"", "", "", ""}, {"", "\x00", "", "/app0"}, {"b", "a", "/app/b", "/app/a"},
	} {
		requireEqual(t, ranged(c[2], c[3]), translate(t, r, ranged(c[0], c[1]), new(pb.RangeRequest)))
	}

	// All fields of a transaction, and in one within.
	txn := func(p, end string) *pb.TxnRequest {
		k := func(s string) []byte { return []byte(p + s) }
		inner := &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: k("c"), RangeEnd: []byte(end), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("v")}}},
			Success: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: k("p"), Value: []byte("/app/p"), Lease: 3, PrevKv: true}}},
				{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: k("d"), RangeEnd: k("e"), PrevKv: true}}},
			},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: k("r"), RangeEnd: []byte(end), Revision: -1}}}},
		}
		return &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: inner}}}}
	}
	requireEqual(t, txn("/app/", "/app0"), translate(t, method(t, n, pb.KV_Txn_FullMethodName).Request, txn("", "\x00"), new(pb.TxnRequest)))

	watch := func(key, end string) *pb.WatchRequest {
		return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: []byte(key), RangeEnd: []byte(end), StartRevision: 5, Filters: []pb.WatchCreateRequest_FilterType{1, 0}}}}
	}
	w := method(t, n, pb.Watch_Watch_FullMethodName).Request
	requireEqual(t, watch("/app/\x00", "/app0"), translate(t, w, watch("", "\x00"), new(pb.WatchRequest)))
	requireEqual(t, watch("/app/\x00", ""), translate(t, w, watch("", ""), new(pb.WatchRequest)))

	lock := method(t, n, lockpb.Lock_Lock_FullMethodName).Request
	requireEqual(t, &lockpb.LockRequest{Name: []byte("/app/"), Lease: 1}, translate(t, lock, &lockpb.LockRequest{Lease: 1}, new(lockpb.LockRequest)))
	requireEqual(t, &lockpb.LockRequest{Name: []byte("/app/x")}, translate(t, lock, &lockpb.LockRequest{Name: []byte("x")}, new(lockpb.LockRequest)))
	resign := method(t, n, lockpb.Election_Resign_FullMethodName).Request
	requireEqual(t, &lockpb.ResignRequest{}, translate(t, resign, &lockpb.ResignRequest{}, new(lockpb.ResignRequest)))
	requireEqual(t, &lockpb.ResignRequest{Leader: &lockpb.LeaderKey{Name: []byte("/app/e"), Key: []byte("/app/e/1"), Rev: 2}},
		translate(t, resign, &lockpb.ResignRequest{Leader: &lockpb.LeaderKey{Name: []byte("e"), Key: []byte("e/1"), Rev: 2}}, new(lockpb.ResignRequest)))
}

func TestRangeEnd(t *testing.T) {
	require.Equal(t, []byte("b"), New("a\xff").end, "not b\\x00, which has the key b before it")
	require.Equal(t, []byte("a/"), New("a.").end)
	require.Equal(t, []byte{0}, New("\xff\xff").end)
}

func TestAnswers(t *testing.T) {
	n := New("/app/")
	watch := func(p string) *pb.WatchResponse {
		return &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 9}, WatchId: 4, Fragment: true, Events: []*mvccpb.Event{
			{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(p + "k"), ModRevision: 8}, PrevKv: &mvccpb.KeyValue{Key: []byte(p + "k"), Value: []byte("/app/")}}}}
	}
	requireEqual(t, watch(""), translate(t, method(t, n, pb.Watch_Watch_FullMethodName).Answer, watch("/app/"), new(pb.WatchResponse)))

	lease := method(t, n, pb.Lease_LeaseTimeToLive_FullMethodName).Answer
	requireEqual(t, &pb.LeaseTimeToLiveResponse{ID: 1, TTL: 2, Keys: [][]byte{[]byte("a"), []byte("b")}}, translate(t, lease,
		&pb.LeaseTimeToLiveResponse{ID: 1, TTL: 2, Keys: [][]byte{[]byte("/app/a"), []byte("/apq"), []byte("/app/b")}}, new(pb.LeaseTimeToLiveResponse)))

	foreign, err := proto.Marshal(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("/apq")}}})
	require.NoError(t, err)
	_, err = method(t, n, pb.KV_Range_FullMethodName).Answer.Apply(foreign)
	require.ErrorIs(t, err, ErrForeign)

	list := method(t, n, pb.Cluster_MemberList_FullMethodName)
	plain := []byte("anything")
	out, err := list.Answer.Apply(plain)
	require.NoError(t, err)
	require.Equal(t, plain, out, "without keys, it isn't even decoded")
}

// TestRefused: what can't be translated is refused, and malformed messages are no panic.
func TestRefused(t *testing.T) {
	n := New("/app/")
	m := method(t, n, pb.KV_Txn_FullMethodName)
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("key"))
	_, err := m.Request.Apply(unknown)
	require.ErrorIs(t, err, ErrUnknown)
	got, err := m.Answer.Apply(unknown)
	require.NoError(t, err)
	require.Equal(t, unknown, got)
	_, err = m.Request.Apply(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1))
	require.ErrorIs(t, err, ErrUnknown, "a known number with another type of encoding is an unknown field")

	deep := &pb.TxnRequest{}
	for range maxDepth {
		deep = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: deep}}}}
	}
	b, err := proto.Marshal(deep)
	require.NoError(t, err)
	_, err = m.Request.Apply(b)
	require.ErrorIs(t, err, ErrTooDeep)

	whole, err := proto.Marshal(&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("key")}}})
	require.NoError(t, err)
	_, err = m.Request.Apply(whole[:len(whole)-1])
	require.ErrorIs(t, err, ErrMalformed)

	_, known := n.Method("/etcdserverpb.KV/New")
	require.False(t, known)
	_, known = n.Method("/other.Service/New")
	require.False(t, known)
}

// TestApplied: a range selects the same keys with and without the prefix, and their neighbours none.
func TestApplied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.Custom(func(t *rapid.T) string {
			return string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xfe, 0xff}), 0, 3).Draw(t, "bytes"))
		})
		prefix := part.Filter(func(s string) bool { return s != "" }).Draw(t, "prefix")
		n := New(prefix)
		k, e := part.Draw(t, "key"), part.Draw(t, "end")
		r := translate(t, method(t, n, pb.KV_Range_FullMethodName).Request, &pb.RangeRequest{Key: []byte(k), RangeEnd: []byte(e)}, new(pb.RangeRequest))
		if k == "" {
			require.Empty(t, r.Key)
			return
		}
		for range 20 {
			stored := part.Filter(func(s string) bool { return s != "" }).Draw(t, "stored")
			inside, within := strings.CutPrefix(stored, prefix)
			want := within && inside != "" && selects(k, e, inside)
			require.Equal(t, want, selects(string(r.Key), string(r.RangeEnd), stored), "%q: %q in %q, %q", prefix, stored, r.Key, r.RangeEnd)
		}
	})
}

func selects(key, end, stored string) bool {
	switch end {
	case "":
		return stored == key
	case "\x00":
		return stored >= key
	}
	return stored >= key && stored < end
}

// values are fields of bytes that are no keys.
var values = []protoreflect.FullName{
	"mvccpb.KeyValue.value", "etcdserverpb.PutRequest.value", "etcdserverpb.Compare.value", "etcdserverpb.SnapshotResponse.blob",
	"v3electionpb.CampaignRequest.value", "v3electionpb.ProclaimRequest.value",
	// Permissions, and quotas, concern the whole cluster.
	"authpb.Permission.key", "authpb.Permission.range_end", "etcdserverpb.AuthRoleRevokePermissionRequest.key", "etcdserverpb.AuthRoleRevokePermissionRequest.range_end",
}

// TestAllFields: each field of bytes of etcd's API is known to be a key or none.
func TestAllFields(t *testing.T) {
	found := map[protoreflect.FullName]bool{}
	seen := map[protoreflect.FullName]bool{}
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] {
			return
		}
		seen[d.FullName()] = true
		for i := range d.Fields().Len() {
			switch f := d.Fields().Get(i); {
			case f.Message() != nil:
				walk(f.Message())
			case f.Kind() == protoreflect.BytesKind:
				found[f.FullName()] = true
				require.True(t, roles[f.FullName()] != other || slices.Contains(values, f.FullName()), f.FullName())
			}
		}
	}
	for _, s := range []string{"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease", "etcdserverpb.Cluster", "etcdserverpb.Maintenance",
		"etcdserverpb.Auth", "v3lockpb.Lock", "v3electionpb.Election"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(s))
		require.NoError(t, err)
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			walk(methods.Get(i).Input())
			walk(methods.Get(i).Output())
		}
	}
	for f := range roles {
		require.True(t, found[f], "%s is no field of the API", f)
	}
}

func FuzzApply(f *testing.F) {
	n := New("/app/")
	m := method(f, n, pb.KV_Txn_FullMethodName)
	whole, _ := proto.Marshal(&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k")}}, Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("p")}}}}})
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		out, err := m.Request.Apply(b)
		require.Equal(t, before, b)
		if err != nil {
			return
		}
		in, translated := new(pb.TxnRequest), new(pb.TxnRequest)
		if proto.Unmarshal(b, in) != nil {
			return
		}
		require.NoError(t, proto.Unmarshal(out, translated))
		inside(t, translated)
	})
}

// inside checks that a transaction touches keys of the namespace only.
func inside(t *testing.T, r *pb.TxnRequest) {
	in := func(k []byte) { require.True(t, len(k) == 0 || bytes.HasPrefix(k, []byte("/app/")), "%q", k) }
	to := func(k []byte) {
		require.True(t, len(k) == 0 || bytes.HasPrefix(k, []byte("/app/")) || string(k) == "/app0", "%q", k)
	}
	for _, c := range r.Compare {
		in(c.Key)
		to(c.RangeEnd)
	}
	for _, op := range append(slices.Clone(r.Success), r.Failure...) {
		in(op.GetRequestRange().GetKey())
		to(op.GetRequestRange().GetRangeEnd())
		in(op.GetRequestPut().GetKey())
		in(op.GetRequestDeleteRange().GetKey())
		to(op.GetRequestDeleteRange().GetRangeEnd())
		if op.GetRequestTxn() != nil {
			inside(t, op.GetRequestTxn())
		}
	}
}
