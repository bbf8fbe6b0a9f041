package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func askReflection(t *testing.T, on bool) grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient {
	s := NewServer(newFakeNode(), Options{})
	if on {
		require.NoError(t, s.ServeReflection())
	}
	l := bufconn.Listen(1 << 20)
	go func() { _ = Front(s).Serve(l) }()
	t.Cleanup(func() { s.Stop(); s.Close() })
	conn, err := grpc.NewClient("passthrough:///bufnet", grpc.WithTransportCredentials(insecure.NewCredentials()), dial(l))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(testContext(t))
	require.NoError(t, err)
	return stream
}

// A client can build every service from what it is told, and nothing else.
func TestReflection(t *testing.T) {
	stream := askReflection(t, true)
	ask := func(r *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		require.NoError(t, stream.Send(r))
		resp, err := stream.Recv()
		require.NoError(t, err)
		require.Nil(t, resp.GetErrorResponse(), resp)
		return resp
	}
	list := ask(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	var set descriptorpb.FileDescriptorSet
	var names []string
	for _, service := range list.GetListServicesResponse().Service {
		names = append(names, service.Name)
		resp := ask(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.Name}})
		for _, b := range resp.GetFileDescriptorResponse().FileDescriptorProto {
			f := &descriptorpb.FileDescriptorProto{}
			require.NoError(t, proto.Unmarshal(b, f))
			if !containsFile(&set, f.GetName()) {
				set.File = append(set.File, f)
			}
		}
	}
	require.Subset(t, names, []string{"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Auth", "v3lockpb.Lock", "v3electionpb.Election", "grpc.health.v1.Health"})
	files, err := protodesc.NewFiles(&set)
	require.NoError(t, err)
	for _, name := range names {
		_, err := files.FindDescriptorByName(protoreflect.FullName(name))
		require.NoError(t, err, name)
	}
	found, err := files.FindDescriptorByName("etcdserverpb.RangeResponse.kvs")
	require.NoError(t, err)
	require.EqualValues(t, "mvccpb.KeyValue", found.(protoreflect.FieldDescriptor).Message().FullName())
}

func containsFile(set *descriptorpb.FileDescriptorSet, name string) bool {
	for _, f := range set.File {
		if f.GetName() == name {
			return true
		}
	}
	return false
}

func TestNoReflectionByDefault(t *testing.T) {
	_, err := askReflection(t, false).Recv()
	require.Equal(t, codes.Unimplemented, status.Code(err))
}
