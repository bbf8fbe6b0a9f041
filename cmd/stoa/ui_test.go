package main

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// onPage sends a request as the script of the page does.
func onPage(t *testing.T, url, body string, headers ...string) (code int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := anyCert.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

var anyCert = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestPageIsOffByDefault(t *testing.T) {
	s, _ := started(t, settings(t, t.TempDir(), "--listen-metrics-urls=http://127.0.0.1:0"))
	for _, port := range []string{s.ports.metrics[0].Addr().String(), s.ports.client[0].Addr().String()} {
		for _, path := range []string{"/ui", "/ui/", "/ui/app.js"} {
			resp, err := http.Get("http://" + port + path)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
		}
		code, _ := onPage(t, "http://"+port+"/ui/v3/kv/range", rangeA)
		require.Equal(t, http.StatusNotFound, code)
	}
}

// It needs no gateway on the client port, and is there with TLS.
func TestPage(t *testing.T) {
	for scheme, args := range map[string][]string{
		"http":  {"--listen-metrics-urls=http://127.0.0.1:0"},
		"https": {"--listen-metrics-urls=https://127.0.0.1:0", "--listen-client-urls=https://127.0.0.1:0", "--auto-tls"},
	} {
		t.Run(scheme, func(t *testing.T) {
			s, _ := started(t, settings(t, t.TempDir(), append(args, "--enable-ui", "--enable-grpc-gateway=false")...))
			at := scheme + "://" + s.ports.metrics[0].Addr().String() + "/ui/"
			resp, err := anyCert.Get(at)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
			code, body := onPage(t, at+"v3/stoa/partitions/list", "{}")
			require.Equal(t, http.StatusOK, code, body)
			require.Contains(t, body, `"partitions":[`)
			code, body = onPage(t, at+"v3/kv/range", rangeA)
			require.Equal(t, http.StatusOK, code, body)
			code, _ = onPage(t, at+"v3/kv/txn", "{}", "Authorization", "any")
			require.Equal(t, http.StatusForbidden, code)
			code, _ = onPage(t, at+"v3/kv/range", rangeA, "Host", "rebound.example")
			require.Equal(t, map[string]int{"http": http.StatusMisdirectedRequest, "https": http.StatusOK}[scheme], code)
		})
	}
}

// A watch of the page must not hold up a stop.
func TestPageStops(t *testing.T) {
	s, down := started(t, settings(t, t.TempDir(), "--listen-metrics-urls=http://127.0.0.1:0", "--enable-ui"))
	resp, err := http.Post("http://"+s.ports.metrics[0].Addr().String()+"/ui/v3/watch", "application/json", strings.NewReader(`{"create_request": `+rangeA+`}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, `"created":true`)
	down()
}

// A user of the page may do what the user may do, and a page without a user nothing.
func TestPageHasTheRightsOfItsUser(t *testing.T) {
	s, _ := started(t, settings(t, t.TempDir(), "--listen-metrics-urls=http://127.0.0.1:0", "--enable-ui", "--bcrypt-cost=4"))
	c := client(t, s.ports.client[0].Addr().String())
	for _, err := range []error{
		last(c.Put(t.Context(), "a", "1")), last(c.Put(t.Context(), "mine/a", "1")),
		last(c.UserAdd(t.Context(), "root", "r")), last(c.UserGrantRole(t.Context(), "root", "root")),
		last(c.UserAdd(t.Context(), "alice", "p")), last(c.RoleAdd(t.Context(), "hers")), last(c.UserGrantRole(t.Context(), "alice", "hers")),
		last(c.RoleGrantPermission(t.Context(), "hers", "mine/", clientv3.GetPrefixRangeEnd("mine/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		last(c.AuthEnable(t.Context())),
	} {
		require.NoError(t, err)
	}
	at := "http://" + s.ports.metrics[0].Addr().String() + "/ui/v3/"
	code, body := onPage(t, at+"kv/range", rangeA)
	require.Equal(t, http.StatusBadRequest, code, body) // etcd's code for a request without a user
	code, body = onPage(t, at+"auth/authenticate", `{"name": "alice", "password": "p"}`)
	require.Equal(t, http.StatusOK, code, body)
	var login struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(body), &login))
	as := []string{"Authorization", login.Token, "Stoa-User", "alice"}
	code, body = onPage(t, at+"kv/range", rangeA, as...)
	require.Equal(t, http.StatusForbidden, code, body)
	code, body = onPage(t, at+"stoa/partitions/list", "{}", as...)
	require.Equal(t, http.StatusForbidden, code, body)
	put := func(key string) string {
		return fmt.Sprintf(`{"success": [{"request_put": {"key": %q, "value": "MQ=="}}]}`, b64(key))
	}
	code, body = onPage(t, at+"kv/txn", put("mine/b"), as...)
	require.Equal(t, http.StatusOK, code, body)
	code, body = onPage(t, at+"kv/txn", put("a"), as...)
	require.Equal(t, http.StatusForbidden, code, body)
	code, body = onPage(t, at+"kv/txn", put("mine/b"), "Authorization", "forged.1")
	require.Equal(t, http.StatusUnauthorized, code, body)
	// The header is for extensions, and gives no rights.
	code, body = onPage(t, at+"kv/range", rangeA, "Authorization", login.Token, "Stoa-User", "root")
	require.Equal(t, http.StatusForbidden, code, body)
}

func last[T any](_ T, err error) error { return err }

// Handlers of extensions are for clients that have acknowledged them. One of anonymous
// clients would otherwise be called by a look at its keys.
func TestPageCallsNoExtension(t *testing.T) {
	s, _ := started(t, settings(t, t.TempDir(), "--listen-metrics-urls=http://127.0.0.1:0", "--enable-ui"))
	c := client(t, s.ports.client[0].Addr().String())
	_, err := c.Put(t.Context(), "/em/pop", `return {
  scope = {"/q/"},
  operations = {{op = "read", key = "/q/head"}},
  read = function(request) create("/q/touched", "") return "handled" end,
}`)
	require.NoError(t, err)
	at := "http://" + s.ports.metrics[0].Addr().String() + "/ui/v3/kv/range"
	_, body := onPage(t, at, fmt.Sprintf(`{"key": %q}`, b64("/q/head")), "Grpc-Metadata-Stoa-Client-Id", "anonymous")
	require.NotContains(t, body, "kvs")
	_, body = onPage(t, at, fmt.Sprintf(`{"key": %q}`, b64("/q/touched")))
	require.NotContains(t, body, "kvs")

	// It is called for others.
	ctx := metadata.AppendToOutgoingContext(t.Context(), "stoa-client-id", "anonymous")
	r, err := c.Get(ctx, "/q/head")
	require.NoError(t, err)
	require.Len(t, r.Kvs, 1)
	require.Equal(t, "handled", string(r.Kvs[0].Value))
}
