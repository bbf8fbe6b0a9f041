package differential

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// jsonRequest is a request to the JSON gateway.
type jsonRequest struct {
	method, path, body string
	lines              int // to read of a stream; then it is closed
	token              bool
}

func ask(path, body string) jsonRequest {
	return jsonRequest{method: http.MethodPost, path: "/v3/" + path, body: body}
}

func (a jsonRequest) by(method string) jsonRequest { a.method = method; return a }
func (a jsonRequest) at(path string) jsonRequest   { a.path = path; return a }
func (a jsonRequest) take(lines int) jsonRequest   { a.lines = lines; return a }
func (a jsonRequest) asRoot() jsonRequest          { a.token = true; return a }

// Fields whose values differ between two clusters.
var volatile = map[string]bool{"cluster_id": true, "member_id": true, "raft_term": true, "memberID": true, "token": true,
	"raftIndex": true, "raftAppliedIndex": true, "raftTerm": true, "dbSize": true, "dbSizeInUse": true, "leader id": true,
	"peerURLs": true, "clientURLs": true, "blob": true, "hash": true}

// mask replaces the values of volatile fields by a mark that they are there.
func mask(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "remaining_bytes") // a small file is one chunk
		for name, value := range v {
			if _, id := value.(string); volatile[name] || id && len(value.(string)) > 4 && (name == "leader" || name == "ID" || name == "lease") {
				v[name] = "some"
				continue
			}
			v[name] = mask(value)
		}
	case []any:
		for i := range v {
			v[i] = mask(v[i])
		}
	}
	return v
}

// reply is a status code, headers, and masked JSON, or text.
func (a jsonRequest) reply(ctx context.Context, url, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.method, url+a.path, strings.NewReader(a.body))
	if err != nil {
		return "", err
	}
	if a.token {
		req.Header.Set("Authorization", token)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	for _, name := range []string{"Date", "Content-Length", "Location"} {
		resp.Header.Del(name)
	}
	out := fmt.Sprintf("%d %q %q\n", resp.StatusCode, resp.Header, resp.TransferEncoding)
	in := bufio.NewReader(resp.Body)
	for n := 0; a.lines == 0 || n < a.lines; n++ {
		line, err := in.ReadString('\n')
		out += masked(line) + "\n"
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func masked(line string) string {
	var v any
	if json.Unmarshal([]byte(line), &v) != nil {
		return line
	}
	// protojson's own errors have one of two kinds of space, by build.
	text, err := json.Marshal(mask(v))
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), "\u00a0", " ")
}

var gatewayScript = []jsonRequest{
	ask("kv/range", `{"key":"a2V5"}`), ask("kv/put", `{"key":"a2V5","value":"MQ=="}`), ask("kv/put", `{"key":"a2V5","value":"Mg==","prev_kv":true}`),
	ask("kv/range", `{"key":"a2V5"}`), ask("kv/range", `{"key":"a2V5"}`).at("/v3beta/kv/range"),
	ask("kv/range", `{"key":"AA==","range_end":"AA==","sort_order":"DESCEND","sort_target":"MOD","limit":"1"}`),
	ask("kv/range", `{"key":"AA==","rangeEnd":"AA==","sortOrder":2,"count_only":true}`), ask("kv/range", `{"key":"a2V5","revision":9}`),
	ask("kv/range", `{"key":"a2V5","revision":"2"}`), ask("kv/range", `{"key":"a2V5","revision":2.5}`), ask("kv/range", `{"key":"a2V5","revision":"99999999999999999999"}`),
	// What isn't a request.
	ask("kv/range", ``), ask("kv/range", `{}`), ask("kv/range", `null`), ask("kv/range", `[]`), ask("kv/range", `"x"`), ask("kv/range", `{`), ask("kv/range", `}`),
	ask("kv/range", `{"key":"?"}`), ask("kv/range", `{"key":"a2V5"} trailing`), ask("kv/range", `{"key":7}`), ask("kv/range", "\xff"), ask("kv/range", `{"key":"a2V5","key":"a2V5"}`),
	ask("kv/range", `{"no such field":[{}]}`), ask("kv/range", `{"sort_order":"NO SUCH"}`), ask("kv/range", strings.Repeat(`{"x":`, 20_000)),
	ask("kv/txn", `{"success":`+strings.Repeat(`[{"request_txn":{"success":`, 5000)+`[]`+strings.Repeat(`}}]`, 5000)+`}`),
	ask("kv/put", `{"key":"a2V5","value":"`+strings.Repeat("AAAA", 600_000)+`"}`), ask("kv/put", `{"key":"a2V5","value":"`+strings.Repeat("AAAA", 800_000)+`"}`),
	// Nor a route.
	ask("kv/range", `{"key":"a2V5"}`).by(http.MethodGet), ask("kv/range", `{"key":"a2V5"}`).by(http.MethodPut), ask("kv/range", ``).by(http.MethodHead),
	ask("kv/range", ``).by(http.MethodOptions), ask("kv/nothing", `{}`), ask("", `{}`), ask("", ``).at("/v3"), ask("kv/range", `{}`).at("/v3alpha/kv/range"), ask("kv/range/", `{}`),
	ask("kv//range", `{}`), ask("kv/../kv/range", `{}`), ask("kv/%72ange", `{"key":"a2V5"}`), ask("kv/range?key=a2V5", ``),
	ask("kv/range", `{}`).at("/no/such/page"),

	ask("kv/txn", `{"compare":[{"target":"VALUE","key":"a2V5","value":"Mg=="}],"success":[{"request_put":{"key":"dA==","value":"MQ=="}},{"request_range":{"key":"dA=="}}],"failure":[{"request_delete_range":{"key":"dA=="}}]}`),
	ask("kv/txn", `{"compare":[{"target":"CREATE","result":"GREATER","key":"a2V5","create_revision":"7"}],"failure":[{"requestDeleteRange":{"key":"dA==","prev_kv":true}}]}`),
	ask("kv/txn", `{}`), ask("kv/txn", `{"success":[{}]}`), ask("kv/txn", `{"success":[{"request_put":{"key":"dA=="}},{"request_put":{"key":"dA=="}}]}`),
	ask("kv/deleterange", `{"key":"a2V5","prev_kv":true}`), ask("kv/compaction", `{"revision":"3"}`), ask("kv/compaction", `{"revision":"3"}`), ask("kv/range", `{"key":"a2V5","revision":"2"}`),

	ask("lease/grant", `{"TTL":"600","ID":"77"}`), ask("lease/grant", `{"TTL":"600","ID":"77"}`), ask("lease/grant", `{"TTL":"-1"}`), ask("lease/grant", `{"TTL":"600"}`),
	ask("kv/put", `{"key":"bA==","lease":"77"}`), ask("lease/keepalive", `{"ID":"77"}`), ask("lease/keepalive", `{"ID":"78"}`), ask("lease/keepalive", `{"ID":"77"}{"ID":"78"}`), ask("lease/keepalive", `{`),
	ask("kv/lease/timetolive", `{"ID":"78","keys":true}`), ask("lease/revoke", `{"ID":"77"}`), ask("kv/lease/revoke", `{"ID":"77"}`), ask("lease/timetolive", `{"ID":"77"}`),

	ask("watch", `{"create_request":{"key":"a2V5","start_revision":"3"}}`).take(2), ask("watch", `{"create_request":{"key":"a2V5","start_revision":"1"}}`).take(2),
	ask("watch", `{"create_request":{"key":"AA==","range_end":"AA==","start_revision":"4","prev_kv":true,"filters":["NODELETE"]}}`).take(2), ask("watch", `{"create_request":{"key":"AA=="}}{"cancel_request":{}}`).take(2),

	ask("maintenance/status", `{}`), ask("maintenance/alarm", `{}`), ask("maintenance/alarm", `{"action":"ACTIVATE","alarm":"NOSPACE"}`), ask("kv/put", `{"key":"eA=="}`), ask("maintenance/alarm", `{"action":"DEACTIVATE","alarm":"NOSPACE"}`),
	ask("maintenance/hashkv", `{}`), ask("maintenance/hash", `{}`), ask("maintenance/defragment", `{}`), ask("maintenance/snapshot", `{}`).take(1), ask("maintenance/downgrade", `{"action":"VALIDATE","version":"x"}`),
	ask("maintenance/transfer-leadership", `{"targetID":"1"}`), ask("cluster/member/list", `{}`), ask("cluster/member/remove", `{"ID":"1"}`), ask("cluster/member/promote", `{"ID":"1"}`), ask("cluster/member/update", `{"ID":"1","peerURLs":["http://127.0.0.1:1"]}`),

	ask("lease/grant", `{"TTL":"600","ID":"7"}`), ask("lease/grant", `{"TTL":"600","ID":"8"}`),
	ask("lock/lock", `{"name":"bG9jaw==","lease":"7"}`), ask("lock/lock", `{"name":"bG9jaw==","lease":"7"}`), ask("lock/lock", `{"name":"bG9jaw==","lease":"9"}`), ask("lock/lock", `{"lease":"7"}`), ask("lock/lock", `{"name":"bG9jaw==","lease":"-1"}`),
	ask("lock/unlock", `{"key":"Lzc="}`), ask("lock/lock", `{`), ask("lock/lock", `{}`).by(http.MethodGet), ask("lock/unlock", `{"key":"bG9jay83"}`), ask("lock/unlock", `{"key":"bG9jay83"}`), ask("lock/unlock", `{}`), ask("lock", `{}`),
	ask("election/leader", `{"name":"ZWxlY3Q="}`), ask("election/campaign", `{"name":"ZWxlY3Q=","lease":"7","value":"MQ=="}`), ask("election/leader", `{"name":"ZWxlY3Q="}`),
	ask("election/campaign", `{"name":"ZWxlY3Q=","lease":"7","value":"Mg=="}`), ask("election/campaign", `{"name":"ZWxlY3Q=","lease":"7","value":"Mg=="}`), ask("election/campaign", `{"name":"ZWxlY3Q=","lease":"9"}`), ask("election/observe", `{"name":"ZWxlY3Q="}`).take(1), ask("election/observe", `{`),
	ask("election/proclaim", `{"leader":{"name":"ZWxlY3Q=","key":"ZWxlY3QvNw==","rev":"1","lease":"7"},"value":"Mw=="}`), ask("election/proclaim", `{}`), ask("election/proclaim", `{"leader":{}}`), ask("election/proclaim", `{"leader":{"key":"bm8="}}`),
	ask("election/resign", `{"leader":{"name":"ZWxlY3Q=","key":"ZWxlY3QvNw==","rev":"1"}}`), ask("election/resign", `{}`), ask("election/resign", `{"leader":{}}`), ask("election/leader", `{"name":"ZWxlY3Q="}`),
	ask("kv/range", `{"key":"AA==","range_end":"AA=="}`),

	ask("auth/status", `{}`), ask("auth/enable", `{}`), ask("auth/user/add", `{"name":"root","password":"pw"}`), ask("auth/user/add", `{"name":"root"}`), ask("auth/user/add", `{}`), ask("auth/role/add", `{"name":"root"}`), ask("auth/user/grant", `{"user":"root","role":"root"}`),
	ask("auth/role/grant", `{"name":"root","perm":{"permType":"READWRITE","key":"AA==","range_end":"AA=="}}`), ask("auth/role/get", `{"role":"root"}`), ask("auth/user/get", `{"name":"nobody"}`), ask("auth/authenticate", `{"name":"root","password":"pw"}`), ask("auth/enable", `{}`),
	ask("auth/authenticate", `{"name":"root","password":"no"}`), ask("auth/authenticate", `{"name":"root","password":"pw"}`), ask("kv/range", `{"key":"a2V5"}`), ask("kv/range", `{"key":"a2V5"}`).asRoot(), ask("maintenance/status", `{}`), ask("watch", `{"create_request":{"key":"a2V5"}}`).take(1),
	ask("watch", `{"create_request":{"key":"a2V5"}}`).take(1).asRoot(), ask("lock/lock", `{"name":"bG9jaw==","lease":"7"}`), ask("lock/lock", `{"name":"bG9jaw==","lease":"7"}`).asRoot(), ask("lock/unlock", `{"key":"bG9jay83"}`), ask("election/leader", `{"name":"ZWxlY3Q="}`),
	ask("election/resign", `{"leader":{"key":"ZWxlY3QvNw=="}}`), ask("lock/unlock", `{"key":"bG9jay83"}`).asRoot(), ask("auth/disable", `{}`), ask("auth/disable", `{}`).asRoot(),
}

// The gateway's answers to the same requests: HTTP code, type, JSON.
func TestGatewayScript(t *testing.T) {
	p := startPair(t, shape{nodes: 1, parts: 1})
	tokens := map[*side]string{}
	for i, a := range gatewayScript {
		got := map[*side]string{}
		for _, s := range []*side{p.ref, p.sut} {
			if a.token && tokens[s] == "" {
				tokens[s] = token(t, s)
			}
			var err error
			got[s], err = a.reply(t.Context(), s.cluster.Endpoints()[0], tokens[s])
			require.NoError(t, err, "%d: %s %.200s on %s", i, a.path, a.body, s.name)
		}
		require.Equal(t, got[p.ref], got[p.sut], "%d: %s %s %.200s", i, a.method, a.path, a.body)
	}
}

func token(t *testing.T, s *side) string {
	resp, err := http.Post(s.cluster.Endpoints()[0]+"/v3/auth/authenticate", "", strings.NewReader(`{"name":"root","password":"pw"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	var answer struct{ Token string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Token
}
