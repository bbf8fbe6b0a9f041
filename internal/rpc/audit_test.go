package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// inMemory is a file in memory.
type inMemory struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (m *inMemory) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.b.Write(b)
}
func (m *inMemory) Close() error { return nil }

func (m *inMemory) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.b.String()
}

// lines closes the log and returns its records.
func (m *inMemory) lines(t *testing.T, l *audit.Log) (list []audit.Record) {
	require.True(t, l.Close(time.Minute))
	for d := json.NewDecoder(strings.NewReader(m.String())); ; {
		var r audit.Record
		err := d.Decode(&r)
		if err == io.EOF {
			return list
		}
		require.NoError(t, err)
		list = append(list, r)
	}
}

func TestAuditLog(t *testing.T) {
	m := new(inMemory)
	log := audit.Open(m, audit.Options{})
	n, c := client(t, Options{Audit: log})
	ctx := metadata.AppendToOutgoingContext(testContext(t), "token", "alice")
	_, err := c.Put(ctx, "/a\x00", "value")
	require.NoError(t, err)
	_, err = c.Get(ctx, "/a\x00")
	require.NoError(t, err)
	_, err = c.Txn(ctx).Then(clientv3.OpGet("read")).Commit()
	require.NoError(t, err)
	_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.Value("c"), "=", "value")).
		Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("p", "value")}, nil)).Else(clientv3.OpDelete("d", clientv3.WithRange("e"))).Commit()
	require.NoError(t, err)
	_, err = c.Grant(ctx, 60)
	require.NoError(t, err)
	refuse := func(bool) error { return fault.PermissionDenied }
	n.permit.Store(&refuse)
	_, err = c.MemberRemove(ctx, 0xabc)
	require.Error(t, err)
	n.fail(fault.PermissionDenied)
	_, err = c.Get(ctx, "hidden", clientv3.WithPrefix())
	require.Error(t, err)
	_, err = c.UserChangePassword(ctx, "bob", "secret")
	require.Error(t, err)

	list := m.lines(t, log)
	for i := range list {
		require.Equal(t, "alice", list[i].User)
		require.NotEmpty(t, list[i].Client)
		require.WithinDuration(t, time.Now(), list[i].Time, time.Hour)
		list[i].User, list[i].Client, list[i].Time = "", "", time.Time{}
	}
	require.Equal(t, []audit.Record{
		{Method: "/etcdserverpb.KV/Put", Keys: []audit.Range{{Op: "put", Key: `/a\x00`}}, Code: "OK", Revision: 2},
		{Method: "/etcdserverpb.KV/Txn", Keys: []audit.Range{{Op: "compare", Key: "c"}, {Op: "put", Key: "p"}, {Op: "delete", Key: "d", End: "e"}}, Code: "OK", Revision: 2},
		{Method: "/etcdserverpb.Lease/LeaseGrant", Subject: audit.Subject{Lease: "77"}, Code: "OK", Revision: 2},
		{Method: "/etcdserverpb.Cluster/MemberRemove", Subject: audit.Subject{Member: "abc"}, Code: "PermissionDenied"},
		{Method: "/etcdserverpb.KV/Range", Keys: []audit.Range{{Op: "range", Key: "hidden", End: "hiddeo"}}, Code: "PermissionDenied"},
		{Method: "/etcdserverpb.Auth/UserChangePassword", Subject: audit.Subject{Name: "bob"}, Code: "PermissionDenied"},
	}, list)
}

// public are the fields of requests whose content may be in the log; all others of text or
// bytes are filled with marks, that must not.
var public = map[protoreflect.Name]bool{
	"key": true, "range_end": true, "name": true, "user": true, "role": true, "version": true, "peerURLs": true,
}

const mark = "SECRET"

// fill draws a request, unknown fields included.
func fill(rng *rand.Rand, m protoreflect.Message, depth int) {
	fields, oneofs := m.Descriptor().Fields(), map[protoreflect.Name]int{}
	for i := range m.Descriptor().Oneofs().Len() {
		o := m.Descriptor().Oneofs().Get(i)
		oneofs[o.Name()] = o.Fields().Get(rng.Intn(o.Fields().Len())).Index()
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && oneofs[o.Name()] != i || depth == 0 && f.Message() != nil {
			continue
		}
		if !f.IsList() {
			m.Set(f, drawn(rng, f, m.NewField(f), depth))
			continue
		}
		list := m.Mutable(f).List()
		for range rng.Intn(3) {
			list.Append(drawn(rng, f, list.NewElement(), depth))
		}
	}
	m.SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 9999, protowire.BytesType), []byte(mark)))
}

func drawn(rng *rand.Rand, f protoreflect.FieldDescriptor, zero protoreflect.Value, depth int) protoreflect.Value {
	text := mark
	if public[f.Name()] {
		text = "public"
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		fill(rng, zero.Message(), depth-1)
		return zero
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rng.Intn(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rng.Intn(f.Enum().Values().Len())))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(rng.Intn(5)))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(rng.Intn(5)))
	}
	return zero
}

// Every method is recorded: reads when they are refused, all others always. No value, no
// password and no other content of an unknown field gets into the log, or out of it in an
// error.
func TestTheAuditLogHasAllMethodsAndNoSecrets(t *testing.T) {
	m := new(inMemory)
	log := audit.Open(m, audit.Options{})
	n, conn := serve(t, Options{Audit: log, MaxTxnOps: 1000})
	ctx := metadata.AppendToOutgoingContext(testContext(t), "token", "alice")
	rng := rand.New(rand.NewSource(1))
	s := NewServer(newFakeNode(), Options{})
	defer s.Close()
	var methods []string
	for service, info := range s.GetServiceInfo() {
		for _, method := range info.Methods {
			if strings.HasPrefix(service, "etcdserverpb.") {
				methods = append(methods, service+"/"+method.Name)
			}
		}
	}
	require.Greater(t, len(methods), 40)
	slices.Sort(methods)
	for _, fails := range []bool{false, true} {
		if fails {
			refuse := func(bool) error { return fault.PermissionDenied }
			n.permit.Store(&refuse)
			n.fail(fault.PermissionDenied)
			var denied error = fault.PermissionDenied
			n.open.Store(&denied)
		}
		for _, method := range methods {
			service, name, _ := strings.Cut(method, "/")
			d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
			require.NoError(t, err)
			md := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
			for range 10 {
				req, resp := dynamicpb.NewMessage(md.Input()), dynamicpb.NewMessage(md.Output())
				fill(rng, req, 4)
				invoke(t, ctx, conn, "/"+method, md, req, resp)
			}
		}
	}
	refusals, others := map[string]bool{}, map[string]bool{}
	for _, r := range m.lines(t, log) {
		require.False(t, reads[r.Method] && r.Code == "OK", "%s is a read", r.Method)
		if r.Code == "PermissionDenied" {
			refusals[r.Method] = true
		} else {
			others[r.Method] = true // requests at random are often invalid
		}
	}
	for _, method := range methods {
		method = "/" + method
		require.True(t, refusals[method] || others[method] || noRefusal[method], "%s when it is refused", method)
		require.True(t, others[method] || reads[method], "%s when it isn't refused", method)
	}
	require.NotContains(t, m.String(), mark)
	require.Contains(t, m.String(), `"public"`)
}

// noRefusal are the methods that the fake node doesn't refuse.
var noRefusal = map[string]bool{
	"/etcdserverpb.Auth/AuthStatus": true,
	"/etcdserverpb.Auth/UserList":   true,
	"/etcdserverpb.Auth/RoleList":   true,
}

// invoke makes a call of any kind, to its end.
func invoke(t *testing.T, ctx context.Context, conn *grpc.ClientConn, method string, md protoreflect.MethodDescriptor, req, resp proto.Message) {
	if !md.IsStreamingServer() {
		_ = conn.Invoke(ctx, method, req, resp)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: md.IsStreamingClient()}, method)
	require.NoError(t, err)
	if err := stream.SendMsg(req); err != nil {
		require.ErrorIs(t, err, io.EOF) // it was refused before
	}
	if md.Name() == "Watch" { // not all requests are answered; this one is
		create := &pb.WatchCreateRequest{Key: []byte("public")}
		_ = stream.SendMsg(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	}
	if !md.IsStreamingClient() {
		require.NoError(t, stream.CloseSend())
	}
	for {
		if err := stream.RecvMsg(resp); err != nil || md.IsStreamingClient() {
			return
		}
	}
}

// Methods that are taken for reads exist; with a new name they would be recorded always.
func TestReadsOfTheAuditLogExist(t *testing.T) {
	s := NewServer(newFakeNode(), Options{})
	defer s.Close()
	known := map[string]bool{}
	for service, info := range s.GetServiceInfo() {
		for _, method := range info.Methods {
			known["/"+service+"/"+method.Name] = true
		}
	}
	for method := range reads {
		if strings.HasPrefix(method, "/etcdserverpb.") {
			require.True(t, known[method], method)
		}
	}
	require.True(t, audit.ReadOnly(&pb.TxnRequest{}))
}

// A server learns whose a token is that another one has given, while it carries out the request.
func TestTheAuditLogLearnsOfAUserMeanwhile(t *testing.T) {
	m := new(inMemory)
	log := audit.Open(m, audit.Options{})
	known := ""
	a := newAuditor(log, func(context.Context) string { return known })
	put := &call{name: pb.KV_Put_FullMethodName}
	ctx, begun := a.begin(t.Context(), put)
	s := a.session(t.Context())
	known = "alice"
	begun.end(ctx, put, &pb.PutRequest{Key: []byte("k")}, nil, nil)
	s.opened(7)
	item := session.NewItems(1)
	item[0].Kind, item[0].Key = stoapb.Kind_PUT, []byte("k")
	s.replied(&item[0].Op)
	list := m.lines(t, log)
	require.Len(t, list, 2)
	for _, r := range list {
		require.Equal(t, "alice", r.User, r.Method)
	}
}
