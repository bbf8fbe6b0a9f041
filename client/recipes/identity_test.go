package recipes_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/client/recipes"
)

// A client is named once, and every recipe uses that name: by gRPC calls and
// watches of stoa's client and of etcd's, and by a session of either.
func TestRecipesSendTheClientID(t *testing.T) {
	of := func(t *testing.T, id string) *client.Client {
		c, err := client.New(client.Config{Endpoints: cli.Endpoints(), ClientID: id})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	etcdOf := func(t *testing.T, id string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: cli.Endpoints(), DialOptions: client.Identify(id), Logger: zap.NewNop()})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	session := func(t *testing.T, c *client.Client) *clientv3.Client {
		s, err := c.Session(t.Context())
		require.NoError(t, err)
		return s.Etcd()
	}
	for name, connect := range map[string]func(t *testing.T, id string) recipes.Client{
		"client":              func(t *testing.T, id string) recipes.Client { return of(t, id) },
		"session":             func(t *testing.T, id string) recipes.Client { return session(t, of(t, id)) },
		"etcd":                func(t *testing.T, id string) recipes.Client { return etcdOf(t, id) },
		"session over etcd's": func(t *testing.T, id string) recipes.Client { return session(t, client.Of(etcdOf(t, id))) },
		"composition": func(t *testing.T, id string) recipes.Client {
			c, err := compose.New(compose.Config{
				Clusters: map[string]compose.Cluster{"all": {Endpoints: cli.Endpoints()}},
				Routes:   []compose.Route{{Cluster: "all"}}, ClientID: id,
			})
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			return c
		},
		"session of an unnamed": func(t *testing.T, _ string) recipes.Client { return session(t, of(t, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			way := strings.NewReplacer(" ", "-", "'", "").Replace(name)
			one, other := "one of "+way, "another of "+way
			tryEveryRecipe(ctx, t, connect(t, one), connect(t, other), "/identity/"+way+"/")
			if name == "session of an unnamed" {
				one = "anonymous"
			}
			owner, err := cli.Get(ctx, "/em/identity-"+way+"-queue/owner")
			require.NoError(t, err)
			require.Equal(t, one, string(owner.Kvs[0].Value))
		})
	}
}

// tryEveryRecipe has the owner register each recipe and make one call that an extension
// has to handle, and another client, which acknowledges it, one more.
func tryEveryRecipe(ctx context.Context, t *testing.T, owner, other recipes.Client, root string) {
	lease := func() clientv3.LeaseID { return grant(ctx) }
	tries := map[string]func(c recipes.Client, root, id string) error{
		"counter": func(c recipes.Client, root, _ string) error {
			_, err := recipes.NewCounter(c, root, "").Add(ctx, 1)
			return err
		},
		"queue": func(c recipes.Client, root, id string) error {
			q := recipes.NewQueue(c, root)
			if _, err := q.Add(ctx, "element"); err != nil {
				return err
			}
			task, err := q.Take(ctx, id, lease())
			if err != nil {
				return err
			}
			return task.Done(ctx)
		},
		"barrier": func(c recipes.Client, root, id string) error {
			b := recipes.NewBarrier(c, root)
			if err := b.SetThreshold(ctx, 1); err != nil {
				return err
			}
			if err := b.Enter(ctx, id, lease()); err != nil {
				return err
			}
			return b.Leave(ctx, id)
		},
		"election": func(c recipes.Client, root, id string) error {
			l, err := recipes.NewElection(c, root, id, lease()).Campaign(ctx)
			if err != nil {
				return err
			}
			return l.Resign(ctx)
		},
		"semaphore": func(c recipes.Client, root, id string) error {
			s := recipes.NewSemaphore(c, root, "s")
			if err := s.SetLimit(ctx, 1); err != nil {
				return err
			}
			if _, err := s.Acquire(ctx, id, lease()); err != nil {
				return err
			}
			return s.Release(ctx, id)
		},
		"ratelimit": func(c recipes.Client, root, _ string) error {
			r := recipes.NewRateLimiter(c, root, "r", 24*time.Hour)
			if err := r.SetLimit(ctx, 10); err != nil {
				return err
			}
			_, _, err := r.Take(ctx, 1)
			return err
		},
		"rename": func(c recipes.Client, root, id string) error {
			if _, err := c.Put(ctx, root+"/from", id); err != nil {
				return err
			}
			_, err := recipes.NewTree(c, root).Rename(ctx, "from", "to")
			return err
		},
		"balancer": func(c recipes.Client, root, id string) error {
			b := recipes.NewBalancer(c, root, "b")
			if err := b.Join(ctx, recipes.Server{Name: id, Address: "here"}, lease()); err != nil {
				return err
			}
			_, err := b.Next(ctx)
			return err
		},
		"tuplespace": func(c recipes.Client, root, id string) error {
			space := recipes.NewTupleSpace(c, root)
			if err := space.Out(ctx, recipes.Tuple{id}, 0); err != nil {
				return err
			}
			_, err := space.Rd(ctx, recipes.Tuple{recipes.Any})
			return err
		},
	}
	for recipe, try := range tries {
		at := root + recipe
		if recipe != "counter" && recipe != "rename" {
			at += "/"
		}
		name := strings.Trim(strings.ReplaceAll(at, "/", "-"), "-")
		for i, c := range []recipes.Client{owner, other} {
			id := []string{"owner", "other"}[i]
			require.NoError(t, recipes.RegisterAt(ctx, c, name, recipe, at), "%s, %s", recipe, id)
			require.NoError(t, try(c, at, id), "%s, %s", recipe, id)
		}
	}
}

// A program is replaced by its owner alone; every client that registers it may
// use it.
func TestRegisterReplacesWhatTheClientOwns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var clients []*client.Client
	for _, id := range []string{"ann", "bob", "ann", ""} {
		c, err := client.New(client.Config{Endpoints: cli.Endpoints(), ClientID: id})
		require.NoError(t, err)
		defer c.Close()
		clients = append(clients, c)
	}
	ann, bob, annAgain, unnamed := clients[0], clients[1], clients[2], clients[3]
	add := func(c *client.Client, root string) error {
		_, err := recipes.NewCounter(c, root, "").Add(ctx, 1)
		return err
	}
	require.NoError(t, recipes.RegisterAt(ctx, ann, "whose", "counter", "/whose/one"))
	require.NoError(t, recipes.RegisterAt(ctx, bob, "whose", "counter", "/whose/two"))
	require.NoError(t, add(bob, "/whose/one"), "acknowledged")
	require.ErrorIs(t, add(bob, "/whose/two"), recipes.ErrUnhandled, "not replaced")
	require.ErrorIs(t, add(unnamed, "/whose/one"), recipes.ErrUnhandled)

	require.NoError(t, recipes.RegisterAt(ctx, annAgain, "whose", "counter", "/whose/two"))
	require.NoError(t, add(ann, "/whose/two"), "replaced")
	require.ErrorIs(t, add(ann, "/whose/one"), recipes.ErrUnhandled)
}

func TestClientIDs(t *testing.T) {
	for _, id := range []string{strings.Repeat("x", 257), "two\nlines", "Zürich"} {
		_, err := client.New(client.Config{Endpoints: cli.Endpoints(), ClientID: id})
		require.ErrorContains(t, err, "ClientID", id)
		c, err := clientv3.New(clientv3.Config{Endpoints: cli.Endpoints(), DialOptions: client.Identify(id), Logger: zap.NewNop()})
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Get(t.Context(), "a")
		require.ErrorContains(t, err, "ClientID")
		_, err = client.Of(c).Session(t.Context())
		require.ErrorContains(t, err, "ClientID")
	}
	longest := strings.Repeat("~", 256)
	c, err := client.New(client.Config{Endpoints: cli.Endpoints(), ClientID: longest})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, recipes.RegisterAt(t.Context(), c, "longest", "counter", "/longest"))
	owner, err := c.Get(t.Context(), "/em/longest/owner")
	require.NoError(t, err)
	require.Equal(t, longest, string(owner.Kvs[0].Value))
}

// lagging is a client of a member that is behind: it sees recent writes late.
type lagging struct {
	recipes.Client
	behind int
}

func (l *lagging) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, opts...); op.Rev() > 0 && l.behind > 0 {
		l.behind--
		return nil, rpctypes.ErrFutureRev
	}
	return l.Client.Get(ctx, key, opts...)
}

func TestRegisterAtAMemberThatIsBehind(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := &lagging{cli, 3}
	require.NoError(t, recipes.RegisterAt(ctx, l, "behind", "counter", "/behind"))
	require.Zero(t, l.behind)
	_, err := recipes.NewCounter(l, "/behind", "").Add(ctx, 1)
	require.NoError(t, err)
}
