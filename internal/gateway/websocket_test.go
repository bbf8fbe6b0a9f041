package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/stoa-kv/stoa/internal/lockpb"
)

// listen serves the handler on a socket; its requests end with ctx.
func listen(t *testing.T, ctx context.Context, h http.Handler) (url string) {
	s := httptest.NewUnstartedServer(h)
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.Start()
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

func dial(t *testing.T, url string, header http.Header) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(url, header)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	return conn
}

func write(t *testing.T, conn *websocket.Conn, message string) {
	t.Helper()
	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(message)))
}

func next(t *testing.T, conn *websocket.Conn) string {
	t.Helper()
	kind, message, err := conn.ReadMessage()
	require.NoError(t, err)
	require.Equal(t, websocket.TextMessage, kind)
	return string(message)
}

// closed waits for a close frame.
func closed(t *testing.T, conn *websocket.Conn, code int) {
	t.Helper()
	_, message, err := conn.ReadMessage()
	require.True(t, websocket.IsCloseError(err, code), "%q, %v", message, err)
}

// Each message is a request, each answer a message.
func TestWebsocketOfAStream(t *testing.T) {
	_, h := start(t, 1<<20)
	conn := dial(t, listen(t, t.Context(), h)+"/v3/watch", nil)
	write(t, conn, `{"create_request": {"key": "YQ=="}}`)
	require.JSONEq(t, `{"result": {"watch_id": "1", "created": true}}`, next(t, conn))
	write(t, conn, `{"progress_request": {}}`)
	require.JSONEq(t, `{"result": {"watch_id": "2"}}`, next(t, conn))
	write(t, conn, `{`)
	write(t, conn, `]`)
	require.JSONEq(t, `{"error": {"code": 14, "message": "etcdserver: no leader"}}`, next(t, conn))
	closed(t, conn, websocket.CloseNormalClosure)
}

// A method that takes one request doesn't wait for the end of the connection.
func TestWebsocketOfOneRequest(t *testing.T) {
	s, h := start(t, 1000)
	url := listen(t, t.Context(), h) + "/v3/kv/put"
	for header, token := range map[string]string{"Bearer, secret.1": "Bearer secret.1", "Bearer,secret.1": "Bearer secret.1"} {
		conn := dial(t, url, http.Header{"Sec-Websocket-Protocol": {header}, "Authorization": {"another"}})
		require.Equal(t, "Bearer", conn.Subprotocol())
		write(t, conn, `{"key": "YQ=="}`)
		require.Contains(t, next(t, conn), `"prev_kv"`)
		require.Equal(t, "a", string((<-s.puts).Key))
		require.Equal(t, []string{token}, <-s.token)
		closed(t, conn, websocket.CloseNormalClosure)
	}

	conn := dial(t, url, http.Header{"Cookie": {"token=secret.2"}})
	require.Empty(t, conn.Subprotocol())
	write(t, conn, `{"key": "YQ=="}`)
	write(t, conn, `{"key": "Yg=="}`) // isn't a request any more
	require.Contains(t, next(t, conn), `"prev_kv"`)
	require.Equal(t, "a", string((<-s.puts).Key))
	require.Equal(t, []string{"Bearer secret.2"}, <-s.token)
	closed(t, conn, websocket.CloseNormalClosure)

	for request, want := range map[string]string{
		`{}`: `{"code": 3, "message": "etcdserver: key is not provided"}`,
		`{"key": "` + strings.Repeat("A", 1<<20) + `"}`: `{"code": 3, "message": "a request in JSON has at most 2000 bytes here (--max-request-bytes)"}`,
	} {
		conn := dial(t, url, nil)
		write(t, conn, request)
		require.JSONEq(t, want, next(t, conn))
		closed(t, conn, websocket.CloseNormalClosure)
	}
	require.Empty(t, s.puts)
}

// A message may take long to come: only one that nobody takes is given up.
func TestWebsocketOfASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan string, 1)
		l := bufconn.Listen(1 << 16)
		server := &http.Server{Handler: overWebsockets(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			message, _ := io.ReadAll(r.Body)
			taken <- string(message)
		}))}
		go server.Serve(l)
		defer server.Close()
		dialer := websocket.Dialer{NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }}
		conn, _, err := dialer.Dial("ws://test/v3/lock/lock", nil)
		require.NoError(t, err)
		defer conn.Close()
		w, err := conn.NextWriter(websocket.TextMessage)
		require.NoError(t, err)
		for range 3 {
			_, err = io.WriteString(w, strings.Repeat("a", 8<<10)) // more than it buffers
			require.NoError(t, err)
			time.Sleep(2 * takeTimeout)
		}
		require.NoError(t, w.Close())
		require.Equal(t, strings.Repeat("a", 24<<10)+"\n", <-taken)
	})
}

// A client that leaves ends what it has asked for, whether it says so or not.
func TestWebsocketOfAClientThatLeaves(t *testing.T) {
	asked, ended := make(chan struct{}), make(chan struct{})
	h := overWebsockets(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	url := listen(t, t.Context(), h)
	for _, path := range []string{"/v3/watch", "/v3/lock/lock"} {
		for _, leave := range []func(*websocket.Conn){
			func(c *websocket.Conn) { c.NetConn().Close() },
			func(c *websocket.Conn) { c.WriteControl(websocket.CloseMessage, nil, time.Now().Add(time.Minute)) },
		} {
			conn := dial(t, url+path, nil)
			<-asked
			leave(conn)
			<-ended
		}
	}
}

// A client that doesn't read, too, doesn't outlast the server.
func TestWebsocketOfAServerThatStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	full, ended := make(chan struct{}), make(chan struct{}, 2)
	h := overWebsockets(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		if r.URL.Path == "/quiet" {
			<-r.Context().Done()
			_, _ = w.Write([]byte("an error that has come of it"))
			return
		}
		close(full)
		for line := []byte(strings.Repeat("A", 1<<20) + "\n"); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	url := listen(t, ctx, h)
	dial(t, url+"/loud", nil)
	quiet := dial(t, url+"/quiet", nil)
	<-full
	stop()
	<-ended
	<-ended
	closed(t, quiet, websocket.CloseGoingAway)
}

// The methods that take more than one request, and no others.
func TestStreamingPaths(t *testing.T) {
	found := map[string]bool{}
	for _, services := range []protoreflect.ServiceDescriptors{pb.File_rpc_proto.Services(), lockpb.File_v3lock_proto.Services(), lockpb.File_v3election_proto.Services()} {
		for i := range services.Len() {
			for j, methods := 0, services.Get(i).Methods(); j < methods.Len(); j++ {
				m := methods.Get(j)
				rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				if m.IsStreamingClient() {
					found[rule.GetPost()] = true
				}
			}
		}
	}
	require.Equal(t, found, streaming)
}
