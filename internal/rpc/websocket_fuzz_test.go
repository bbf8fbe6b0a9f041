package rpc

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// frame is a text message of a client's in one frame of a websocket, masked with zeros.
func frame(text string) string {
	return string([]byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}) + text
}

// FuzzWebsocket sends frames as they are on the wire, behind a handshake with fields that are read
// before any check of rights. The server must be done with the connection soon after its client is.
func FuzzWebsocket(f *testing.F) {
	f.Add("kv/range", "Bearer, x.1", "token=x", frame(`{"key":"YQ=="}`))
	f.Add("kv/put", "", "", frame(`{"key":"YQ==","value":"YQ=="}`)+frame(`{"key":"Yg=="}`))
	f.Add("watch", "Bearer,", "", frame(`{"create_request":{"key":"YQ=="}}`)+frame(`{"progress_request":{}}`)+frame(`{"cancel_request":{"watch_id":"1"}}`))
	f.Add("lease/keepalive", "Bearer", "", frame(`{"ID":"7"}`)+"\x88\x80\x00\x00\x00\x00")
	f.Add("lock/lock", "x", "token", "\x89\x80\x00\x00\x00\x00"+frame(`{"name":"YQ==","lease":"7"}`))
	f.Add("watch", "", "", "\x01\x82\x00\x00\x00\x00{}\x80\x81\x00\x00\x00\x00\n") // in two frames
	f.Add("watch", "", "", "\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00{")

	pages := clientPages(f)
	var running atomic.Int64
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "s"))
	require.NoError(f, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		pages.ServeHTTP(w, r)
	})}
	go server.Serve(l)
	f.Cleanup(func() { server.Close() })

	field := strings.NewReplacer("\r", "", "\n", "")
	f.Fuzz(func(t *testing.T, path, protocol, cookie, frames string) {
		if strings.ContainsAny(path, "\r\n ?%") {
			return // FuzzHTTP has these
		}
		conn, err := net.Dial("unix", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		head := fmt.Sprintf("GET /v3/%s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Version: 13\r\n"+
			"Sec-Websocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-Websocket-Protocol: %s\r\nCookie: %s\r\n\r\n", path, field.Replace(protocol), field.Replace(cookie))
		_, err = io.WriteString(conn, head)
		require.NoError(t, err)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		if resp.StatusCode == http.StatusSwitchingProtocols {
			_ = conn.SetDeadline(time.Now().Add(10 * time.Millisecond)) // one that doesn't read
			go func() {
				_, _ = io.WriteString(conn, frames)
				time.Sleep(200 * time.Microsecond) // for some of the answers: a client that waits is one that leaves
				_ = conn.(*net.UnixConn).CloseWrite()
			}()
			_, _ = io.Copy(io.Discard, in)
		}
		conn.Close()
		for left := time.Now(); running.Load() > 0; time.Sleep(50 * time.Microsecond) {
			if time.Since(left) > 4*time.Second {
				t.Fatal("the server waits for a client that has left")
			}
		}
	})
}
