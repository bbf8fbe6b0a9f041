package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/recipes"
)

// Recipes wait over sessions as they do over etcd's client: for an answer that is there
// at once, and for one that comes later.
func TestElectionOverSessions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, recipes.RegisterAt(ctx, cli, "sessions", "election", "/sessions/"))
	var candidates []*recipes.Election
	for _, level := range []client.Level{client.Strict, client.Fast} {
		c, err := client.New(client.Config{Endpoints: cli.Endpoints(), ClientID: "example", Level: level})
		require.NoError(t, err)
		defer c.Close()
		s, err := c.Session(ctx)
		require.NoError(t, err)
		candidates = append(candidates, recipes.NewElection(s.Etcd(), "/sessions/", level.String(), s.ID()))
	}
	leads, err := candidates[0].Campaign(ctx)
	require.NoError(t, err)
	for i := range 20 {
		next, elected := candidates[(i+1)%2], make(chan *recipes.Leadership, 1)
		go func() {
			l, err := next.Campaign(ctx)
			if err != nil {
				t.Error(err)
			}
			elected <- l
		}()
		require.Eventually(t, func() bool {
			resp, err := cli.Get(ctx, "/sessions/candidates/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && resp.Count == 2
		}, 10*time.Second, time.Millisecond)
		require.NoError(t, leads.Resign(ctx))
		l := <-elected
		require.NotNil(t, l)
		require.Greater(t, l.Revision, leads.Revision)
		leads = l
	}
	require.NoError(t, leads.Resign(ctx)) // sessions outlive their clients
}
