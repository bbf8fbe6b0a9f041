package extensions

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// A strict extension on three servers: a client acknowledges it at one, and writes right
// afterwards at another, which may not have applied the acknowledgement yet. The write is a
// call; and refused as soon as the acknowledgement has been revoked at yet another.
func TestAStrictExtensionIsStrictOnAllServers(t *testing.T) {
	w := newWorld(t, 3, settings[0])
	_, err := w.clientAs("owner").Put(w.ctx, "/em/tasks", `return { strict = true, scope = { "/tasks/" },
		operations = { { op = "put", key = "/tasks/add" } }, put = function() return "called" end }`)
	require.NoError(t, err)
	at := make([]*clientv3.Client, len(w.Servers))
	sessions := make([]*client.Session, len(w.Servers))
	for i := range at {
		at[i] = w.clientAs("bob")
		at[i].SetEndpoints(w.Endpoints()[i])
		sessions[i] = w.sessionAs("bob", i)
	}
	puts := func(i int) map[string]func() (*clientv3.PutResponse, error) {
		return map[string]func() (*clientv3.PutResponse, error){
			"call": func() (*clientv3.PutResponse, error) {
				return at[i].Put(w.ctx, "/tasks/add", "x", clientv3.WithPrevKV())
			},
			"session": func() (*clientv3.PutResponse, error) {
				return sessions[i].Put(w.ctx, "/tasks/add", "x", clientv3.WithPrevKV())
			},
		}
	}
	for round := range sized(12, 60) {
		first, second := round%3, (round+1+round/3%2)%3
		for kind := range puts(second) {
			what := fmt.Sprintf("round %d: by %s, acknowledged at server %d, written at %d", round, kind, first+1, second+1)
			_, err := at[first].Put(w.ctx, "/em/tasks/ack", "")
			require.NoError(t, err, what)
			r, err := puts(second)[kind]()
			require.NoError(t, err, what)
			require.NotNil(t, r.PrevKv, what)
			require.Equal(t, "called", string(r.PrevKv.Value), what)

			_, err = at[first].Delete(w.ctx, "/em/tasks/ack")
			require.NoError(t, err, what)
			_, err = puts(second)[kind]()
			require.ErrorContains(t, err, `client "bob" has not acknowledged extension "tasks"`, what)
		}
	}
	require.Empty(t, w.get("/tasks/add"), "no write was an ordinary one")
}
