package differential

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// conversation is what a client says over a websocket of the gateway: the header of its
// handshake, and messages, each with the number of those that come next.
type conversation struct {
	name, path string
	header     http.Header
	says       []saying
}

type saying struct {
	message string
	answers int
}

func talk(name, path string, says ...saying) conversation {
	return conversation{name: name, path: "/v3/" + path, says: says}
}

func (c conversation) with(name, value string) conversation {
	c.header = http.Header{name: {value}}
	return c
}

// transcript is what the server has said.
func (c conversation) transcript(t *testing.T, s *side, token string) string {
	header := http.Header{}
	for name, values := range c.header {
		header.Set(name, strings.ReplaceAll(values[0], "TOKEN", token))
	}
	var out strings.Builder
	conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.cluster.Endpoints()[0], "http")+c.path, header)
	if err != nil {
		require.NotNil(t, resp, "%s: %v", s.name, err)
		text, _ := bufio.NewReader(resp.Body).ReadString('\n')
		return fmt.Sprintf("%d %q %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	resp.Header.Del("Sec-Websocket-Accept")
	fmt.Fprintf(&out, "%d %q\n", resp.StatusCode, resp.Header)
	for _, say := range c.says {
		require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(say.message)))
		for range say.answers {
			kind, message, err := conn.ReadMessage()
			if err != nil {
				fmt.Fprintln(&out, "ended") // etcd doesn't send close frames
				return out.String()
			}
			fmt.Fprintln(&out, kind, masked(string(message)))
		}
	}
	return out.String()
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

var conversations = []conversation{
	talk("a watch", "watch",
		saying{`{"create_request":{"key":"d3M=","start_revision":"2"}}`, 2},
		saying{`{"progress_request":{}}`, 1},
		saying{`{"cancel_request":{"watch_id":"0"}}`, 1}),
	talk("two watches in one message", "watch", saying{`{"create_request":{"key":"YQ=="}}{"create_request":{"key":"Yg=="}}`, 2}),
	talk("one in two messages", "watch", saying{`{"create_request":`, 0}, saying{`{"key":"YQ=="}}`, 1}),
	talk("a large event", "watch", saying{`{"create_request":{"key":"bGFyZ2U=","start_revision":"2"}}`, 2}),
	talk("no watch", "watch", saying{`{"create_request":{"key":"d3M=","start_revision":"-1"}}`, 1}),
	talk("a compacted revision", "watch", saying{`{"create_request":{"key":"d3M=","start_revision":"1"}}`, 2}),
	talk("keep-alives", "lease/keepalive", saying{`{"ID":"77"}`, 1}, saying{`{"ID":"77"}`, 1}, saying{`{"ID":"78"}`, 1}),
	talk("an election", "election/observe"),
	talk("a subprotocol", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Sec-Websocket-Protocol", "Bearer, nonsense"),
	talk("another subprotocol", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Sec-Websocket-Protocol", "soap"),
	talk("another page's", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Origin", "http://example.com"),
	talk("v3beta", "", saying{`{"create_request":{"key":"d3M="}}`, 1}).at("/v3beta/watch"),
	talk("a method", "watch?method=GET", saying{`{"create_request":{"key":"d3M="}}`, 1}),
	talk("no page", "").at("/health"),
}

func (c conversation) at(path string) conversation { c.path = path; return c }

// With authentication on.
var conversationsOfUsers = []conversation{
	talk("nobody", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}),
	talk("a token in the wrong place", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Authorization", "TOKEN"),
	talk("a subprotocol", "watch", saying{`{"create_request":{"key":"d3M=","start_revision":"2"}}`, 2}).with("Sec-Websocket-Protocol", "Bearer, TOKEN"),
	talk("without a space", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Sec-Websocket-Protocol", "Bearer,TOKEN"),
	talk("another token", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Sec-Websocket-Protocol", "Bearer, nonsense"),
	talk("a cookie", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Cookie", "token=TOKEN"),
	talk("another cookie", "watch", saying{`{"create_request":{"key":"d3M="}}`, 1}).with("Cookie", "token=nonsense"),
}

// What the gateway says over websockets, from the handshake on.
func TestWebsockets(t *testing.T) {
	p := startPair(t, shape{nodes: 1, parts: 1})
	both := func(a jsonRequest) {
		for _, s := range []*side{p.ref, p.sut} {
			_, err := a.reply(t.Context(), s.cluster.Endpoints()[0], "")
			require.NoError(t, err)
		}
	}
	compare := func(list []conversation, token func(*side) string) {
		for _, c := range list {
			require.Equal(t, c.transcript(t, p.ref, token(p.ref)), c.transcript(t, p.sut, token(p.sut)), c.name)
		}
	}
	both(ask("kv/put", `{"key":"d3M=","value":"MQ=="}`))
	both(ask("kv/put", `{"key":"bGFyZ2U=","value":"`+encoded(strings.Repeat("large", 200_000))+`"}`))
	both(ask("kv/compaction", `{"revision":"2"}`))
	both(ask("lease/grant", `{"TTL":"600","ID":"77"}`))
	compare(conversations, func(*side) string { return "" })

	both(ask("auth/user/add", `{"name":"root","password":"pw"}`))
	both(ask("auth/role/add", `{"name":"root"}`))
	both(ask("auth/user/grant", `{"user":"root","role":"root"}`))
	both(ask("auth/enable", `{}`))
	tokens := map[*side]string{p.ref: token(t, p.ref), p.sut: token(t, p.sut)}
	compare(conversationsOfUsers, func(s *side) string { return tokens[s] })
}
