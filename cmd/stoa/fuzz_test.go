package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// guarded starts a whole server for fuzzing, with authentication, whose passwords aren't guessed,
// and an audit log.
func guarded(f *testing.F) *server {
	dir := f.TempDir()
	cfg := settings(f, dir, "--bcrypt-cost=4", "--listen-metrics-urls=http://127.0.0.1:0", "--audit-log="+filepath.Join(dir, "audit.log"))
	ctx, cancel := context.WithCancel(context.Background())
	s, err := start(ctx, cfg, zap.NewNop())
	require.NoError(f, err)
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx) }()
	f.Cleanup(func() {
		cancel()
		require.NoError(f, <-served)
		require.NoError(f, s.stop())
	})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ports.client[0].Addr().String()}, DialTimeout: fuzzPatience, Logger: zap.NewNop()})
	require.NoError(f, err)
	defer c.Close()
	within, done := context.WithTimeout(ctx, fuzzPatience)
	defer done()
	_, err = c.Put(within, "key", "value")
	require.NoError(f, err)
	_, err = c.UserAdd(within, "root", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
	require.NoError(f, err)
	_, err = c.RoleAdd(within, "root")
	require.NoError(f, err)
	_, err = c.UserGrantRole(within, "root", "root")
	require.NoError(f, err)
	_, err = c.AuthEnable(within)
	require.NoError(f, err)
	return s
}

// fuzzPatience is how long an answer may take on a machine that has much else to do.
const fuzzPatience = time.Minute

// asIs sends and receives messages without a look at them.
type asIs struct{}

func (asIs) Name() string                       { return "proto" }
func (asIs) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (asIs) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }

// open are the methods that anybody may call, and that don't look for a password.
var open = map[string]bool{
	"/etcdserverpb.Auth/AuthStatus": true,
	"/grpc.health.v1.Health/Check":  true, "/grpc.health.v1.Health/List": true, "/grpc.health.v1.Health/Watch": true,
}

// FuzzMethods sends messages of any bytes to each method of a whole server with authentication, by
// a client without a token. Each call gets an answer in time, and none that needs a right.
func FuzzMethods(f *testing.F) {
	s := guarded(f)
	var methods []string
	streams := map[string]*grpc.StreamDesc{}
	for service, info := range s.ports.rpc.Server.GetServiceInfo() {
		for _, m := range info.Methods {
			name := fmt.Sprintf("/%s/%s", service, m.Name)
			methods = append(methods, name)
			if m.IsClientStream || m.IsServerStream {
				streams[name] = &grpc.StreamDesc{ClientStreams: m.IsClientStream, ServerStreams: m.IsServerStream}
			}
		}
	}
	slices.Sort(methods)
	for i := range methods {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte("\x0a\x03key\x12\x03kez"))
		f.Add(uint8(i), []byte("\x0a\x05\x0a\x03key\x10\x01\x18\x02"))
	}
	conn, err := grpc.NewClient(s.ports.client[0].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(asIs{})))
	require.NoError(f, err)
	f.Cleanup(func() { conn.Close() })
	f.Fuzz(func(t *testing.T, index uint8, message []byte) {
		method := methods[int(index)%len(methods)]
		var answer []byte
		var err error
		if d := streams[method]; d != nil {
			answer, err = first(conn, method, d, message)
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), fuzzPatience)
			defer cancel()
			err = conn.Invoke(ctx, method, &message, &answer)
			require.NotEqual(t, codes.DeadlineExceeded, status.Code(err), "%s %q has no answer", method, message)
		}
		if status.Code(err) == codes.Internal { // gRPC's own code for what can't be decoded
			require.ErrorContains(t, err, "unmarshal", "%s %q", method, message)
		}
		if method == pb.Watch_Watch_FullMethodName && err == nil {
			var w pb.WatchResponse
			require.NoError(t, proto.Unmarshal(answer, &w))
			require.True(t, w.Canceled || len(w.Events) == 0 && !w.Created, "%q opens a watch", message)
			return
		}
		require.True(t, err != nil || open[method], "%s %q is answered", method, message)
	})
}

// first returns the first message of a stream. One that has none for a moment waits for more
// messages, or for what isn't there yet.
func first(conn *grpc.ClientConn, method string, d *grpc.StreamDesc, message []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	stream, err := conn.NewStream(ctx, d, method)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(&message); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return answer, stream.RecvMsg(&answer)
}

// FuzzPorts sends any bytes to each port of a whole server, which has to end the connection once the
// client has sent everything.
func FuzzPorts(f *testing.F) {
	s := guarded(f)
	ports := []string{s.ports.client[0].Addr().String(), s.ports.peer[0].Addr().String(), s.ports.metrics[0].Addr().String()}
	var frames bytes.Buffer
	frames.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&frames, nil)
	require.NoError(f, fr.WriteSettings())
	require.NoError(f, fr.WritePing(false, [8]byte{1}))
	for i := range ports {
		for _, seed := range []string{
			"", "\n", "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", "GET /health HTTP/1.1\r\nHost: h\r\n\r\nGET /version HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET /members HTTP/1.0\r\n\r\n", "POST /v3/kv/range HTTP/1.1\r\nHost: h\r\nContent-Length: 14\r\n\r\n{\"key\":\"a2V5\"}",
			"POST /v3/watch HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"cre",
			"POST /v3/watch HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\r\n{\"cre", "GET /v3/watch HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
			"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", http2.ClientPreface, frames.String(), "PRI * HTTP/2.0\r\n\r\nSM", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
		} {
			f.Add(uint8(i), []byte(seed))
		}
	}
	alive := &http.Client{Timeout: fuzzPatience}
	f.Fuzz(func(t *testing.T, port uint8, data []byte) {
		addr := ports[int(port)%len(ports)]
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(fuzzPatience)))
		if _, err := conn.Write(data); err == nil { // else it has been closed before
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		_, err = io.Copy(io.Discard, conn)
		var late net.Error
		require.False(t, errors.As(err, &late) && late.Timeout(), "a connection to %s stays open after %q", addr, data)
		if len(data)%16 == 0 {
			resp, err := alive.Get("http://" + ports[2] + "/health")
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.True(t, strings.Contains(string(text), `"health":"true"`), "%s", text)
		}
	})
}
