package h2_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpc_testing "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/h2"
)

// TestUnknown: methods that aren't registered are handled as streams, with a well-formed name.
func TestUnknown(t *testing.T) {
	r := newRig(t, h2.Options{Unknown: func(_ any, s grpc.ServerStream) error {
		var in grpc_testing.SimpleRequest
		if err := s.RecvMsg(&in); err != nil {
			return err
		}
		name, _ := grpc.MethodFromServerStream(s)
		return s.SendMsg(&grpc_testing.SimpleResponse{Username: name, Payload: in.Payload})
	}})
	for _, method := range []string{"/grpc.testing.TestService/Nothing", "/no.such/Service"} {
		var resp grpc_testing.SimpleResponse
		require.NoError(t, r.conn.Invoke(context10(t), method, &grpc_testing.SimpleRequest{Payload: body(7)}, &resp))
		require.Equal(t, method, resp.Username)
		require.Len(t, resp.Payload.Body, 7)
	}
	err := r.conn.Invoke(context10(t), "/nothing", &grpc_testing.Empty{}, &grpc_testing.Empty{})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	_, err = r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
	require.NoError(t, err, "those that are registered are called")
}
