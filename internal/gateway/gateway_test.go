package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
)

// services answer puts and watches, and keep what they were asked.
type services struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	puts  chan *pb.PutRequest
	token chan []string
}

func (s *services) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	s.puts <- r
	s.token <- metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameSwagger)
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 1 << 60}, PrevKv: &mvccpb.KeyValue{Key: r.Key}}, nil
}

// Watch answers each request, until there are no more.
func (s *services) Watch(stream pb.Watch_WatchServer) error {
	for n := int64(1); ; n++ {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return rpctypes.ErrGRPCNoLeader
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.WatchResponse{WatchId: n, Created: r.GetCreateRequest() != nil}); err != nil {
			return err
		}
	}
}

func start(t *testing.T, maxMessage int) (*services, http.Handler) {
	s := &services{puts: make(chan *pb.PutRequest, 1), token: make(chan []string, 1)}
	return s, serving(t, maxMessage, func(g *grpc.Server) {
		pb.RegisterKVServer(g, s)
		pb.RegisterWatchServer(g, s)
	})
}

func serving(t *testing.T, maxMessage int, register func(*grpc.Server)) http.Handler {
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	register(g)
	go g.Serve(l)
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	h, err := New(conn, maxMessage)
	require.NoError(t, err)
	return h
}

func post(h http.Handler, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.Header.Set("Authorization", "secret.1")
	h.ServeHTTP(w, r)
	return w
}

func TestUnary(t *testing.T) {
	s, h := start(t, 1<<20)
	w := post(h, "/v3/kv/put", strings.NewReader(`{"key": "YQ==", "lease": "9007199254740993", "ignore_value": true, "unknown": 1}`))
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{"header": {"revision": "1152921504606846976"}, "prev_kv": {"key": "YQ=="}}`, w.Body.String())
	got := <-s.puts
	require.Equal(t, "a", string(got.Key))
	require.EqualValues(t, 1<<53+1, got.Lease)
	require.True(t, got.IgnoreValue)
	require.Equal(t, []string{"secret.1"}, <-s.token)
}

func TestErrors(t *testing.T) {
	_, h := start(t, 1<<20)
	for _, tc := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/v3/kv/put", `{}`, http.StatusBadRequest, `{"code": 3, "message": "etcdserver: key is not provided"}`},
		{"/v3/kv/put", ``, http.StatusBadRequest, `{"code": 3, "message": "etcdserver: key is not provided"}`},
		{"/v3/kv/put", `{`, http.StatusBadRequest, `{"code": 3, "message": "unexpected EOF"}`},
		{"/v3/kv/nope", `{}`, http.StatusNotFound, `{"code": 5, "message": "Not Found"}`},
		{"/v3/kv/compaction", `{}`, http.StatusNotImplemented, `{"code": 12, "message": "method Compact not implemented"}`},
	} {
		w := post(h, tc.path, strings.NewReader(tc.body))
		require.Equal(t, tc.code, w.Code, tc)
		require.JSONEq(t, tc.want, w.Body.String(), tc)
	}
}

// Answers of a stream are lines; so is the error that ends it.
func TestStream(t *testing.T) {
	_, h := start(t, 1<<20)
	w := post(h, "/v3/watch", strings.NewReader(`{"create_request": {"key": "YQ=="}} {"progress_request": {}}`))
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	require.Len(t, lines, 3)
	require.JSONEq(t, `{"result": {"watch_id": "1", "created": true}}`, lines[0])
	require.JSONEq(t, `{"result": {"watch_id": "2"}}`, lines[1])
	require.JSONEq(t, `{"error": {"code": 14, "message": "etcdserver: no leader"}}`, lines[2])
}

// endless is a body that goes on as long as it is read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat("A", len(p)))
	e.read += n
	return n, nil
}

// lasting has watches that last until their client leaves.
type lasting struct{ pb.UnimplementedWatchServer }

func (lasting) Watch(stream pb.Watch_WatchServer) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// Clients that leave are noticed, also those that have sent what isn't JSON, or no body of HTTP's.
func TestAMalformedStreamEnds(t *testing.T) {
	h := serving(t, 1<<10, func(g *grpc.Server) { pb.RegisterWatchServer(g, lasting{}) })
	server := httptest.NewServer(h)
	defer server.Close()
	for name, sent := range map[string]string{
		"nothing malformed":        "Content-Length: 2\r\n\r\n{}",
		"a chunk without a length": "Transfer-Encoding: chunked\r\n\r\n\r\n{",
		"half a chunk":             "Transfer-Encoding: chunked\r\n\r\n5\r\n{",
		"no JSON":                  "Content-Length: 3\r\n\r\n}}}",
		"no JSON, and no end":      "Content-Length: 100000\r\n\r\n" + strings.Repeat("}", 10_000),
		"too long a message":       "Content-Length: 100000\r\n\r\n{\"" + strings.Repeat("x", 10_000),
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, "POST /v3/watch HTTP/1.1\r\nHost: h\r\n"+sent)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		_, err = io.Copy(io.Discard, conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
	}
}

// answering has watches that answer once, and last until their client leaves.
type answering struct{ pb.UnimplementedWatchServer }

func (answering) Watch(stream pb.Watch_WatchServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&pb.WatchResponse{Created: true}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// lateBody is read again only once something has been answered.
type lateBody struct {
	io.ReadCloser
	answered chan struct{}
	reads    int
}

func (b *lateBody) Read(p []byte) (int, error) {
	if b.reads++; b.reads > 1 {
		<-b.answered
	}
	return b.ReadCloser.Read(p)
}

type answerWriter struct {
	http.ResponseWriter
	answered chan struct{}
	once     sync.Once
}

func (w *answerWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.Flush()
	w.once.Do(func() { close(w.answered) })
	return n, err
}

func (w *answerWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// net/http reads the rest of a body before it sends the first part of an answer, and closes it: a stream that
// finds that its request has ended only then goes on.
func TestAStreamOutlivesItsRequest(t *testing.T) {
	h := serving(t, 1<<10, func(g *grpc.Server) { pb.RegisterWatchServer(g, answering{}) })
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		answered := make(chan struct{})
		r.Body = &lateBody{ReadCloser: r.Body, answered: answered}
		h.ServeHTTP(&answerWriter{ResponseWriter: w, answered: answered}, r)
	}))
	defer server.Close()
	answer, err := http.Post(server.URL+"/v3/watch", "application/json", strings.NewReader(`{"create_request":{"key":"YQ=="}}`))
	require.NoError(t, err)
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, `"created":true`)
	select {
	case <-ended:
		t.Fatal("the watch has ended with its request")
	case <-time.After(100 * time.Millisecond):
	}
	answer.Body.Close()
	<-ended
}

func TestARequestIsBounded(t *testing.T) {
	const most = 1000
	s, h := start(t, most)
	fits := `{"key": "` + strings.Repeat("AAAA", most/3) + `"}`
	require.Equal(t, http.StatusOK, post(h, "/v3/kv/put", strings.NewReader(fits)).Code)
	require.Len(t, (<-s.puts).Key, most/3*3)
	<-s.token

	more := &endless{}
	w := post(h, "/v3/kv/put", io.MultiReader(strings.NewReader(`{"key": "`), more))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "at most 2000 bytes")
	require.LessOrEqual(t, more.read, jsonFactor*most)
	require.Empty(t, s.puts)

	// Each request of a stream is bounded by itself.
	var body strings.Builder
	for i := range 100 {
		fmt.Fprintf(&body, `{"create_request": {"key": "YQ==", "watch_id": "%d"}}`, i)
	}
	w = post(h, "/v3/watch", strings.NewReader(body.String()))
	require.Equal(t, 100, strings.Count(w.Body.String(), "created"))
}
