package adversary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ownPaths are those of stoa's own methods, which have no annotations.
var ownPaths = map[protoreflect.FullName]string{
	"stoa.v1.Partitions.List": "/v3/stoa/partitions/list",
	"stoa.v1.Quotas.List":     "/v3/stoa/quotas/list",
	"stoa.v1.Extensions.Logs": "/v3/stoa/extensions/logs",
}

// pathOf is where the gateway has a method; "" if it hasn't.
func pathOf(md protoreflect.MethodDescriptor) string {
	if own := ownPaths[md.FullName()]; own != "" {
		return own
	}
	rule, _ := proto.GetExtension(md.Options(), annotations.E_Http).(*annotations.HttpRule)
	return rule.GetPost()
}

// throughGateway makes the call by JSON over HTTP, with the first of its messages.
func (c *call) throughGateway(ctx context.Context, t *testing.T, w *twin, token string) string {
	body, err := protojson.Marshal(c.requests[0])
	if err != nil {
		return "no JSON" // a name that isn't UTF-8
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.server.ClientURL+c.method.path, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	if !c.none {
		r.Header.Set("Authorization", token)
	}
	for i := 0; i+1 < len(c.metadata); i += 2 {
		r.Header.Set("Grpc-Metadata-"+c.metadata[i], c.metadata[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "no request" // a token that no header can have
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprintln(resp.StatusCode, c.plain(text), err)
}

// throughWebsocket makes the call over a websocket, each of its messages one of JSON, and returns all
// lines that come until the server closes the connection. One that takes more messages doesn't
// close it: it is left after it was idle for some time.
func (c *call) throughWebsocket(ctx context.Context, w *twin, token string, idle time.Duration) string {
	header := http.Header{}
	switch {
	case c.none:
	case len(c.metadata) == 0:
		header.Set("Sec-Websocket-Protocol", "Bearer, "+token)
	default:
		header.Set("Cookie", "token="+token)
	}
	for i := 0; i+1 < len(c.metadata); i += 2 {
		header.Set("Grpc-Metadata-"+c.metadata[i], c.metadata[i+1])
	}
	conn, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(w.server.ClientURL, "http")+c.method.path, header)
	if err != nil {
		if resp == nil {
			return "no handshake"
		}
		return fmt.Sprint("no handshake: ", resp.StatusCode)
	}
	defer conn.Close()
	for _, r := range c.requests {
		body, err := protojson.Marshal(r)
		if err != nil {
			return "no JSON" // a name that isn't UTF-8
		}
		if conn.WriteMessage(websocket.TextMessage, body) != nil {
			break // the reason comes with what is received
		}
	}
	var all []string
	for {
		wait := callTime
		if c.method.manyIn || endless[c.method.name] {
			wait = idle
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		_, line, err := conn.ReadMessage()
		var closed *websocket.CloseError
		switch {
		case err == nil:
			all = append(all, c.plain(line))
			continue
		case errors.As(err, &closed):
			all = append(all, fmt.Sprint("closed with ", closed.Code))
		case errors.Is(err, os.ErrDeadlineExceeded):
			all = append(all, "open")
		default:
			all = append(all, "broken")
		}
		return strings.Join(all, "\n")
	}
}

// plain is an answer in JSON without what is forgiven.
func (c *call) plain(text []byte) string {
	var stream struct{ Result json.RawMessage }
	if json.Unmarshal(text, &stream) == nil && stream.Result != nil {
		text = stream.Result
	}
	out := c.method.out.New().Interface()
	if protojson.Unmarshal(text, out) != nil {
		return string(text)
	}
	return told(out, nil)
}

// TestPathsOfTheGateway asks for each path that calls are made of: none is unknown.
func TestPathsOfTheGateway(t *testing.T) {
	t.Parallel()
	w := newTwin(t, 0)
	found := map[string]bool{}
	for _, m := range methods(t) {
		if m.path == "" || endless[m.name] {
			continue
		}
		found[m.path] = true
		resp, err := http.Post(w.server.ClientURL+m.path, "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.NotEqual(t, http.StatusNotFound, resp.StatusCode, m.path)
	}
	for name, path := range ownPaths {
		require.True(t, found[path], name)
	}
}
