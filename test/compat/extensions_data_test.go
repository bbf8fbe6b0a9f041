package compat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/recipes"
)

func TestRecipeCounter(t *testing.T) {
	extended(t, 6, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("counter")
		const each = 40
		var seen sync.Map
		together(t, len(clients), func(i int) error {
			c := recipes.NewCounter(clients[i], root, "")
			for range each {
				n, err := c.Add(ctx, 1)
				if err != nil {
					return err
				}
				if _, twice := seen.LoadOrStore(n, true); twice {
					return fmt.Errorf("%d was handed out twice", n)
				}
				resp, err := clients[i].Get(ctx, root+"-increment/reads")
				if err != nil || len(resp.Kvs) != 1 {
					return fmt.Errorf("%v, %w", resp, err)
				}
			}
			return nil
		})
		for name, want := range map[string]int{"": each * len(clients), "reads": each * len(clients), "untouched": 0} {
			n, err := recipes.NewCounter(e.cli, root, name).Value(ctx)
			require.NoError(t, err)
			require.EqualValues(t, want, n, name)
		}
		_, err := recipes.NewCounter(e.cli, root, "").Add(ctx, 1<<62)
		require.NoError(t, err)
		_, err = recipes.NewCounter(e.cli, root, "").Add(ctx, 1<<62)
		require.ErrorContains(t, err, "line", "an overflow")
	})
}

// Many clients of different names register the same at once: all of them can use it.
func TestRecipesRegisteredByMany(t *testing.T) {
	extended(t, 6, func(t *testing.T, e *env, clients []*clientv3.Client) {
		name, root := strings.Trim(e.root, "/")+"-many", e.root+"many"
		named := make([]*clientv3.Client, len(clients))
		for i := range named {
			named[i] = e.named(fmt.Sprint("client ", i), e.Endpoints()[i%e.nodes])
		}
		together(t, len(named), func(i int) error {
			for range 3 {
				if err := recipes.RegisterAt(e.ctx, named[i], name, "counter", root); err != nil {
					return err
				}
				if _, err := recipes.NewCounter(named[i], root, "").Add(e.ctx, 1); err != nil {
					return err
				}
			}
			return nil
		})
		foreign := recipes.NewCounter(e.cli, root, "")
		_, err := foreign.Add(e.ctx, 1)
		require.ErrorIs(t, err, recipes.ErrUnhandled)
		n, err := foreign.Value(e.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 3*len(clients), n)
	})
}

func TestRecipeRateLimiter(t *testing.T) {
	extended(t, 4, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("ratelimit")
		require.NoError(t, recipes.NewRateLimiter(e.cli, root, "r", 24*time.Hour).SetLimit(ctx, 50))
		var granted atomic.Int64
		together(t, len(clients), func(i int) error {
			r := recipes.NewRateLimiter(clients[i], root, "r", 24*365*time.Hour)
			for range 20 {
				_, ok, err := r.Take(ctx, 1)
				if err != nil {
					return err
				}
				if ok {
					granted.Add(1)
				}
			}
			return nil
		})
		require.EqualValues(t, 50, granted.Load())
	})
}

// Watchers and reads see a rename atomically.
func TestRecipeRenameIsAtomic(t *testing.T) {
	extended(t, 1, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("rename")
		const files, moves = 40, 12
		var rev int64
		for i := range files {
			rev = e.put(fmt.Sprintf("%s/d0/f%02d", root, i), fmt.Sprint(i))
		}
		watch := e.cli.Watch(ctx, root+"/", clientv3.WithPrefix(), clientv3.WithRev(rev+1))
		reading, stop := context.WithCancel(ctx)
		read := make(chan error, 1)
		go func() {
			for reading.Err() == nil {
				resp, err := clients[0].Get(ctx, root+"/", clientv3.WithPrefix())
				if err == nil && resp.Count != files {
					err = fmt.Errorf("%d files", resp.Count)
				}
				if err != nil {
					read <- err
					return
				}
			}
			read <- nil
		}()
		tree := recipes.NewTree(e.cli, root)
		for i := range moves {
			n, err := tree.Rename(ctx, fmt.Sprint("d", i), fmt.Sprint("d", i+1))
			require.NoError(t, err)
			require.EqualValues(t, files, n)
		}
		stop()
		require.NoError(t, <-read)

		atRevision, total := map[int64]int{}, 0
		for total < 2*files*moves {
			resp := <-watch
			require.NoError(t, resp.Err())
			for _, ev := range resp.Events {
				atRevision[ev.Kv.ModRevision]++
				total++
			}
		}
		require.Len(t, atRevision, moves)
		for rev, n := range atRevision {
			require.Equal(t, 2*files, n, "revision %d", rev)
		}
		for old, new := range map[string]string{"none": "x", "d12": "d12/below", "d12/": "x", "d12/f00": "d12/f01"} {
			_, err := tree.Rename(ctx, old, new)
			require.Equal(t, old == "d12/f00", err == nil, "%s to %s: %v", old, new, err)
		}
		e.put(root+"/other/f", "x")
		_, err := tree.Rename(ctx, "d12", "other")
		require.ErrorContains(t, err, "exists")
		require.EqualValues(t, files, e.get(root+"/", clientv3.WithPrefix()).Count)
	})
}

func TestRecipeBalancer(t *testing.T) {
	extended(t, 4, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("balancer")
		b := recipes.NewBalancer(e.cli, root, "web")
		_, err := b.Next(ctx)
		require.ErrorIs(t, err, recipes.ErrNoServer)
		lease := e.session(60)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, b.Join(ctx, recipes.Server{Name: name, Address: name + ":80"}, lease))
		}
		var picked sync.Map
		together(t, len(clients), func(i int) error {
			for range 15 {
				s, err := recipes.NewBalancer(clients[i], root, "web").Next(ctx)
				if err != nil {
					return err
				}
				n, _ := picked.LoadOrStore(s, new(atomic.Int64))
				n.(*atomic.Int64).Add(1)
			}
			return nil
		})
		for _, name := range []string{"a", "b", "c"} {
			n, ok := picked.Load(recipes.Server{Name: name, Address: name + ":80"})
			require.True(t, ok)
			require.EqualValues(t, 20, n.(*atomic.Int64).Load())
		}
		require.NoError(t, b.Leave(ctx, "a"))
		require.NoError(t, b.Join(ctx, recipes.Server{Name: "bb"}, 0))
		for _, want := range []string{"b", "bb", "c", "b"} {
			s, err := b.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, want, s.Name)
		}
		_, err = e.cli.Revoke(ctx, lease)
		require.NoError(t, err)
		s, err := b.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, "bb", s.Name)
	})
}

func TestRecipeTupleSpace(t *testing.T) {
	extended(t, 4, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("tuplespace")
		type tuple = recipes.Tuple
		s := recipes.NewTupleSpace(e.cli, root)
		require.NoError(t, s.Out(ctx, tuple{"job", "1"}, 0))
		require.NoError(t, s.Out(ctx, tuple{"job", "2"}, 0))
		require.NoError(t, s.Out(ctx, tuple{"job", "2"}, 0))
		odd := tuple{"a,b/c*%2C", "", "*", "\x00\xff"}
		require.NoError(t, s.Out(ctx, odd, 0))

		all, err := s.RdAll(ctx, tuple{"job", recipes.Any})
		require.NoError(t, err)
		require.Equal(t, []tuple{{"job", "1"}, {"job", "2"}, {"job", "2"}}, all, "a space holds equal tuples")
		all, err = s.RdAll(ctx, tuple{recipes.Any, "2"})
		require.NoError(t, err)
		require.Len(t, all, 2)
		got, err := s.Rdp(ctx, tuple{recipes.Any, recipes.Any, "*", recipes.Any})
		require.NoError(t, err)
		require.Equal(t, odd, got)
		_, err = s.Rdp(ctx, tuple{"job"})
		require.ErrorIs(t, err, recipes.ErrNoMatch, "as many fields")
		got, err = s.Rd(ctx, tuple{"job", "1"})
		require.NoError(t, err)
		require.Equal(t, tuple{"job", "1"}, got)

		got, err = s.Replace(ctx, tuple{"job", "1"}, tuple{"job", "3"})
		require.NoError(t, err)
		require.Equal(t, tuple{"job", "1"}, got)
		_, err = s.Replace(ctx, tuple{"job", "1"}, tuple{"job", "4"})
		require.ErrorIs(t, err, recipes.ErrNoMatch)
		all, err = s.RdAll(ctx, tuple{"job", recipes.Any})
		require.NoError(t, err)
		require.Equal(t, []tuple{{"job", "2"}, {"job", "2"}, {"job", "3"}}, all)

		// Of several concurrent removals, one gets the tuple.
		var won, taken atomic.Int64
		together(t, len(clients), func(i int) error {
			s := recipes.NewTupleSpace(clients[i], root)
			ok, err := s.Cas(ctx, tuple{"lock", recipes.Any}, tuple{"lock", fmt.Sprint(i)})
			if err == nil && ok {
				won.Add(1)
			}
			if err == nil {
				if _, err = s.Inp(ctx, tuple{"job", recipes.Any}); err == nil {
					taken.Add(1)
				}
			}
			if errors.Is(err, recipes.ErrNoMatch) {
				err = nil
			}
			return err
		})
		require.EqualValues(t, 1, won.Load())
		require.EqualValues(t, 3, taken.Load())

		// All that wait for a tuple read it when it comes; it goes with its lease.
		read := make(chan string, len(clients))
		for i := range clients {
			go func() {
				got, err := recipes.NewTupleSpace(clients[i], root).Rd(ctx, tuple{"event", recipes.Any})
				read <- fmt.Sprint(got, err)
			}()
		}
		e.exists(root + "waiting/event,*")
		time.Sleep(50 * time.Millisecond)
		lease := e.session(60)
		require.NoError(t, s.Out(ctx, tuple{"event", "x"}, lease))
		for range clients {
			require.Equal(t, "[event x] <nil>", <-read)
		}
		_, err = e.cli.Revoke(ctx, lease)
		require.NoError(t, err)
		_, err = s.Rdp(ctx, tuple{"event", recipes.Any})
		require.ErrorIs(t, err, recipes.ErrNoMatch)
	})
}
