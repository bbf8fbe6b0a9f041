package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

func post(t *testing.T, c *http.Client, url, body string) (code int, answer string) {
	t.Helper()
	resp, err := c.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

const rangeA = `{"key": "YQ=="}`

// Also where a port carries HTTP alone, and the gateway has none of its own.
func TestGatewayOnEveryKindOfPort(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for name, tc := range map[string]struct {
		args   []string
		scheme string
		http   bool // the port is of --listen-client-http-urls
	}{
		"plain":       {scheme: "http"},
		"TLS":         {args: []string{"--listen-client-urls=https://127.0.0.1:0", "--auto-tls"}, scheme: "https"},
		"HTTP alone":  {args: []string{"--listen-client-http-urls=http://127.0.0.1:0"}, scheme: "http", http: true},
		"unix socket": {args: []string{"--listen-client-http-urls=unix://" + socket}, scheme: "http", http: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := settings(t, t.TempDir(), tc.args...)
			s, _ := started(t, cfg)
			port := s.ports.client[0]
			if tc.http {
				port = s.ports.http[0]
			}
			tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					return net.Dial(port.Addr().Network(), port.Addr().String())
				}}
			defer tr.CloseIdleConnections()
			code, body := post(t, &http.Client{Transport: tr}, tc.scheme+"://localhost/v3/kv/range", rangeA)
			require.Equal(t, http.StatusOK, code, body)
			require.Contains(t, body, `"revision":"1"`)

			dialer := websocket.Dialer{NetDialContext: tr.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			ws, _, err := dialer.Dial(strings.Replace(tc.scheme, "http", "ws", 1)+"://localhost/v3/kv/range", nil)
			require.NoError(t, err)
			defer ws.Close()
			require.NoError(t, ws.WriteMessage(websocket.TextMessage, []byte(rangeA)))
			_, message, err := ws.ReadMessage()
			require.NoError(t, err)
			require.Contains(t, string(message), `"revision":"1"`)
		})
	}
}

// A watch through the gateway must not hold up a stop.
func TestGatewayStops(t *testing.T) {
	addr, down := up(t, settings(t, t.TempDir()))
	resp, err := http.Post("http://"+addr+"/v3/watch", "", strings.NewReader(`{"create_request": `+rangeA+`}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, `"created":true`)
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+addr+"/v3/watch", nil)
	require.NoError(t, err)
	defer ws.Close()
	require.NoError(t, ws.WriteMessage(websocket.TextMessage, []byte(`{"create_request": `+rangeA+`}`)))
	_, created, err := ws.ReadMessage()
	require.NoError(t, err)
	require.Contains(t, string(created), `"created":true`)
	down()
	_, message, err := ws.ReadMessage()
	require.True(t, websocket.IsCloseError(err, websocket.CloseGoingAway), "%s, %v", message, err)
}

func TestGatewayOff(t *testing.T) {
	addr, _ := up(t, settings(t, t.TempDir(), "--enable-grpc-gateway=false"))
	code, _ := post(t, http.DefaultClient, "http://"+addr+"/v3/kv/range", rangeA)
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, `{"health":"true","reason":""}`, page(t, "http://"+addr+"/health"))
}
