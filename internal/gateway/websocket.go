package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// etcd has github.com/tmc/grpc-websocket-proxy around its gateway. A connection through
// sockets looks the same to a client, with these differences:
//
//   - A method that takes one request is called once it has come. Through etcd's proxy the
//     request never ends, and the method is called when the client has closed the connection.
//   - A connection is closed by a close frame.
//   - A request is bounded as without websockets; etcd's proxy reads messages of any size.

// closeTimeout bounds the time that a client has to read the rest and to answer a close frame.
const closeTimeout = time.Second

// takeTimeout bounds the time for which what has come of a message waits to be taken, when there is no room for it in the
// inbox. However slowly the message comes, that isn't part of it.
const takeTimeout = 5 * time.Second

// streaming are the paths of methods that take more than one request.
var streaming = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// sockets offers the handler next over websockets: each message of a client is a request in
// JSON, each line of the answer a message to it.
type sockets struct {
	next     http.Handler
	upgrader websocket.Upgrader
}

func overWebsockets(next http.Handler) *sockets {
	return &sockets{next: next, upgrader: websocket.Upgrader{
		ReadBufferSize: 1024, WriteBufferSize: 1024,
		// Origins are decided on in front of all pages, where CORS is.
		CheckOrigin: func(*http.Request) bool { return true },
	}}
}

func (s *sockets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) {
		s.next.ServeHTTP(w, r)
		return
	}
	var answer http.Header
	if strings.HasPrefix(r.Header.Get("Sec-Websocket-Protocol"), "Bearer") {
		answer = http.Header{"Sec-Websocket-Protocol": {"Bearer"}}
	}
	conn, err := s.upgrader.Upgrade(w, r, answer)
	if err != nil {
		return // the client has got an answer
	}
	defer conn.Close()
	s.serve(conn, r)
}

func (s *sockets) serve(conn *websocket.Conn, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// A client that reads nothing must not hold up a graceful shutdown.
	defer context.AfterFunc(r.Context(), func() {
		time.AfterFunc(closeTimeout, func() { conn.Close() })
	})()

	body := newInbox()
	received := make(chan struct{})
	go func() {
		defer close(received)
		defer cancel()
		receive(conn, body, !streaming[r.URL.Path])
	}()
	out := &lines{ctx: ctx, conn: conn, header: http.Header{}}
	s.next.ServeHTTP(out, translated(ctx, r, body))
	out.end()

	code := websocket.CloseNormalClosure
	if r.Context().Err() != nil {
		code = websocket.CloseGoingAway
	}
	body.CloseWithError(errEnded)
	deadline := time.Now().Add(closeTimeout)
	_ = conn.SetReadDeadline(deadline)
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), deadline)
	<-received
}

var errEnded = errors.New("the websocket has been closed")

// translated is the request as the gateway takes it. Of its header it has what etcd's
// proxy forwards.
func translated(ctx context.Context, r *http.Request, body io.ReadCloser) *http.Request {
	out := (&http.Request{
		Method: http.MethodPost, URL: r.URL, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: http.Header{}, Body: body, ContentLength: -1, Host: r.Host, RemoteAddr: r.RemoteAddr, TLS: r.TLS,
	}).WithContext(ctx)
	for _, name := range [...]string{"Origin", "Referer"} {
		if v := r.Header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	// A browser can't set the field Authorization of a websocket.
	if _, token, ok := strings.Cut(r.Header.Get("Sec-Websocket-Protocol"), "Bearer,"); ok {
		out.Header.Set("Authorization", "Bearer "+strings.Trim(token, " "))
	}
	if cookie, err := r.Cookie("token"); err == nil {
		out.Header.Set("Authorization", "Bearer "+cookie.Value)
	}
	return out
}

// receive hands over the client's messages, or the first of them, until the connection ends.
// It goes on reading after that, for the close frame.
func receive(conn *websocket.Conn, to *inbox, one bool) {
	defer to.CloseWithError(errEnded)
	for {
		_, message, err := conn.NextReader()
		if err != nil {
			return
		}
		if _, err = io.Copy(taking{to}, message); err == nil {
			_, _ = taking{to}.Write([]byte{'\n'})
		}
		if one {
			to.Close()
		}
		if _, err = io.Copy(io.Discard, message); err != nil {
			return
		}
	}
}

// taking is an inbox that ends if it isn't read for long.
type taking struct{ from *inbox }

// Write implements io.Writer.
func (t taking) Write(p []byte) (int, error) {
	defer time.AfterFunc(takeTimeout, func() { t.from.CloseWithError(errEnded) }).Stop()
	return t.from.Write(p)
}

// lines is a response whose lines are messages to the client. Its status and its header are
// lost, for the answer to the handshake has been sent.
type lines struct {
	ctx    context.Context
	conn   *websocket.Conn
	header http.Header
	rest   []byte // a line that hasn't ended
}

// Header implements http.ResponseWriter.
func (l *lines) Header() http.Header { return l.header }

// WriteHeader implements http.ResponseWriter.
func (l *lines) WriteHeader(int) {}

// Flush implements http.Flusher.
func (l *lines) Flush() {}

// Write implements http.ResponseWriter.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte{'\n'})
		if !ended {
			return len(p), nil
		}
		if err := l.send(line); err != nil {
			return 0, err
		}
		l.rest = append(l.rest[:0], rest...)
	}
}

// end sends what no end of a line has come for.
func (l *lines) end() { _ = l.send(l.rest) }

func (l *lines) send(line []byte) error {
	if err := l.ctx.Err(); err != nil {
		return err // the client has left, or the server is about to
	}
	if len(line) == 0 {
		return nil
	}
	return l.conn.WriteMessage(websocket.TextMessage, line)
}
