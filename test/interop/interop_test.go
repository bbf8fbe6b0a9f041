package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/testdata"

	"github.com/stoa-kv/stoa/internal/h2"
)

// call is a case that is a function of the client alone.
type call = func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)

// calls are grpc's cases without those for Google's credentials, and those for load reports
// (ORCA), which are an option of grpc-go's server.
var calls = map[string]call{
	"empty_unary":                 interop.DoEmptyUnaryCall,
	"large_unary":                 interop.DoLargeUnaryCall,
	"client_streaming":            interop.DoClientStreaming,
	"server_streaming":            interop.DoServerStreaming,
	"ping_pong":                   interop.DoPingPong,
	"empty_stream":                interop.DoEmptyStream,
	"timeout_on_sleeping_server":  interop.DoTimeoutOnSleepingServer,
	"cancel_after_begin":          often(interop.DoCancelAfterBegin),
	"cancel_after_first_response": interop.DoCancelAfterFirstResponse,
	"custom_metadata":             interop.DoCustomMetadata,
	"status_code_and_message":     interop.DoStatusCodeAndMessage,
	"special_status_message":      interop.DoSpecialStatusMessage,
}

// failing makes a failed case panic, with its reason: the cases end the process by grpc-go's log.
type failing struct{ grpclog.LoggerV2 }

func (failing) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (failing) Fatalln(args ...any)               { panic(fmt.Sprint(args...)) }
func (failing) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// often repeats a case that fails now and then with any server: grpc-go's client reports an
// answer that arrives before it has noticed the cancellation of its call.
func often(do call) call {
	passes := func(ctx context.Context, c testgrpc.TestServiceClient, o []grpc.CallOption) (ok bool) {
		defer func() { ok = recover() == nil }()
		do(ctx, c, o...)
		return true
	}
	return func(ctx context.Context, c testgrpc.TestServiceClient, o ...grpc.CallOption) {
		for range 5 {
			if passes(ctx, c, o) {
				return
			}
		}
		do(ctx, c, o...)
	}
}

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(failing{grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr)})
	os.Exit(m.Run())
}

// serve serves grpc's test service, and returns its address.
func serve(t *testing.T, creds credentials.TransportCredentials) string {
	s := h2.NewServer(h2.Options{Creds: creds})
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

// security is how a connection is protected, at both of its ends.
type security struct {
	server, client credentials.TransportCredentials
}

func secured(t *testing.T) security {
	cert, err := tls.LoadX509KeyPair(testdata.Path("x509/server1_cert.pem"), testdata.Path("x509/server1_key.pem"))
	require.NoError(t, err)
	client, err := credentials.NewClientTLSFromFile(testdata.Path("x509/server_ca_cert.pem"), "x.test.example.com")
	require.NoError(t, err)
	return security{server: credentials.NewServerTLSFromCert(&cert), client: client}
}

func dial(t *testing.T, addr string, creds credentials.TransportCredentials) *grpc.ClientConn {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestInterop(t *testing.T) {
	for name, sec := range map[string]security{"plain": {client: insecure.NewCredentials()}, "TLS": secured(t)} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, serve(t, sec.server), sec.client)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			client := testgrpc.NewTestServiceClient(conn)
			for name, do := range calls {
				t.Run(name, func(*testing.T) { do(ctx, client) })
				t.Run(name+"/gzip", func(*testing.T) { do(ctx, client, grpc.UseCompressor(gzip.Name)) })
			}
			t.Run("unimplemented_method", func(*testing.T) { interop.DoUnimplementedMethod(ctx, conn) })
			t.Run("unimplemented_service", func(*testing.T) {
				interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
			})
		})
	}
}

// The soak cases: large calls by several callers, on one connection, and on one for each call.
func TestSoak(t *testing.T) {
	addr := serve(t, nil)
	shared := dial(t, addr, insecure.NewCredentials())
	for name, channel := range map[string]func() (*grpc.ClientConn, func()){
		"rpc_soak": func() (*grpc.ClientConn, func()) { return shared, func() {} },
		"channel_soak": func() (*grpc.ClientConn, func()) {
			conn := dial(t, addr, insecure.NewCredentials())
			return conn, func() { conn.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			interop.DoSoakTest(t.Context(), interop.SoakTestConfig{
				RequestSize: 271828, ResponseSize: 314159, PerIterationMaxAcceptableLatency: time.Minute,
				OverallTimeout: 5 * time.Minute, ServerAddr: addr, NumWorkers: 4, Iterations: 40, ChannelForTest: channel,
			})
		})
	}
}
