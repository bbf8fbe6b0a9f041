package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

func TestReflectionByFlag(t *testing.T) {
	for flag, want := range map[string]codes.Code{"--enable-grpc-reflection": codes.OK, "--enable-grpc-reflection=false": codes.Unimplemented} {
		addr, _ := up(t, settings(t, t.TempDir(), flag))
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		require.NoError(t, err)
		_ = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "stoa.v1.Sessions"}})
		resp, err := stream.Recv()
		require.Equal(t, want, status.Code(err), flag)
		require.Equal(t, want == codes.OK, len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) > 0, flag)
	}
}
