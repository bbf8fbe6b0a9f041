package compat

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/client"
)

// guarded is a cluster with authentication: root, and the users a and b, who may read and
// write what is below /a/ and /b/. Passwords are names.
type guarded struct {
	*env
	root, a, b *clientv3.Client
}

func guard(t *testing.T, e *env) *guarded {
	for _, u := range []string{"root", "a", "b"} {
		_, err := e.cli.RoleAdd(e.ctx, u)
		require.NoError(t, err)
		_, err = e.cli.UserAdd(e.ctx, u, u)
		require.NoError(t, err)
		_, err = e.cli.UserGrantRole(e.ctx, u, u)
		require.NoError(t, err)
	}
	g := &guarded{env: e}
	for _, u := range []string{"a", "b"} {
		_, err := e.cli.RoleGrantPermission(e.ctx, u, "/"+u+"/", "/"+u+"0", clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
	}
	_, err := e.cli.AuthEnable(e.ctx)
	require.NoError(t, err)
	g.root, g.a, g.b = g.as("root"), g.as("a"), g.as("b")
	return g
}

func (g *guarded) as(user string, endpoints ...string) *clientv3.Client {
	g.t.Helper()
	if endpoints == nil {
		endpoints = g.Endpoints()
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Username: user, Password: user, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// reconnected waits until clients have found servers again that were restarted: they repeat
// reads until then, and no writes.
func (g *guarded) reconnected(clients ...*clientv3.Client) {
	g.t.Helper()
	for _, c := range clients {
		_, err := c.Get(g.ctx, "/a/")
		require.NoError(g.t, err)
	}
}

func (g *guarded) session(user, id string) *client.Session {
	g.t.Helper()
	c, err := client.New(client.Config{Endpoints: g.Endpoints(), Username: user, Password: user, ClientID: id})
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(g.ctx)
	require.NoError(g.t, err)
	return s
}

// revoke takes user a its rights, and grant gives them back.
func (g *guarded) revoke() {
	_, err := g.root.RoleRevokePermission(g.ctx, "a", "/a/", "/a0")
	require.NoError(g.t, err)
}

func (g *guarded) grant() {
	_, err := g.root.RoleGrantPermission(g.ctx, "a", "/a/", "/a0", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(g.t, err)
}

// users is own for tests of users and roles.
func users(t *testing.T, nodes int, args []string, test func(t *testing.T, g *guarded)) {
	onlyStoa(t)
	own(t, nodes, args, func(t *testing.T, e *env) { test(t, guard(t, e)) })
}

var cheap = []string{"--bcrypt-cost=4"}

func denied(t *testing.T, err error, what ...any) {
	t.Helper()
	require.ErrorContains(t, err, "permission denied", what...)
}

// TestNobodyPasses tries every way to keys of another user, and everything that is root's.
func TestNobodyPasses(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		_, err := g.b.Put(g.ctx, "/b/1", "secret")
		require.NoError(t, err)
		granted, err := g.b.Grant(g.ctx, 600)
		require.NoError(t, err)
		_, err = g.b.Put(g.ctx, "/b/leased", "v", clientv3.WithLease(granted.ID))
		require.NoError(t, err)
		own := clientv3.OpPut("/a/1", "v")
		for name, do := range map[string]func(c *clientv3.Client) error{
			"get": func(c *clientv3.Client) error { _, err := c.Get(g.ctx, "/b/1"); return err },
			"serializable": func(c *clientv3.Client) error {
				_, err := c.Get(g.ctx, "/b/1", clientv3.WithSerializable())
				return err
			},
			"count": func(c *clientv3.Client) error {
				_, err := c.Get(g.ctx, "/b/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				return err
			},
			"all":    func(c *clientv3.Client) error { _, err := c.Get(g.ctx, "\x00", clientv3.WithFromKey()); return err },
			"wider":  func(c *clientv3.Client) error { _, err := c.Get(g.ctx, "/a/", clientv3.WithRange("/b")); return err },
			"put":    func(c *clientv3.Client) error { _, err := c.Put(g.ctx, "/b/1", "v"); return err },
			"delete": func(c *clientv3.Client) error { _, err := c.Delete(g.ctx, "/b/1"); return err },
			"compare": func(c *clientv3.Client) error {
				_, err := c.Txn(g.ctx).If(clientv3.Compare(clientv3.Value("/b/1"), "=", "secret")).Then(own).Commit()
				return err
			},
			"other branch": func(c *clientv3.Client) error {
				_, err := c.Txn(g.ctx).Then(own).Else(clientv3.OpGet("/b/1")).Commit()
				return err
			},
			"nested": func(c *clientv3.Client) error {
				_, err := c.Txn(g.ctx).Then(own, clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpDelete("/b/1")})).Commit()
				return err
			},
			"read in txn": func(c *clientv3.Client) error {
				_, err := c.Txn(g.ctx).Then(clientv3.OpGet("/b/1")).Commit()
				return err
			},
			"attach": func(c *clientv3.Client) error {
				_, err := c.Put(g.ctx, "/a/1", "v", clientv3.WithLease(granted.ID))
				return err
			},
			"attach in txn": func(c *clientv3.Client) error {
				_, err := c.Txn(g.ctx).Then(clientv3.OpPut("/a/1", "v", clientv3.WithLease(granted.ID))).Commit()
				return err
			},
			"revoke lease": func(c *clientv3.Client) error { _, err := c.Revoke(g.ctx, granted.ID); return err },
			"lease keys": func(c *clientv3.Client) error {
				_, err := c.TimeToLive(g.ctx, granted.ID, clientv3.WithAttachedKeys())
				return err
			},
			"leases":     func(c *clientv3.Client) error { _, err := c.Leases(g.ctx); return err },
			"keep alive": func(c *clientv3.Client) error { _, err := c.KeepAliveOnce(g.ctx, granted.ID); return err },
			"compact":    func(c *clientv3.Client) error { _, err := c.Compact(g.ctx, 2); return err },
			"hashkv":     func(c *clientv3.Client) error { _, err := c.HashKV(g.ctx, g.Servers[0].ClientURL, 0); return err },
			"defragment": func(c *clientv3.Client) error { _, err := c.Defragment(g.ctx, g.Servers[0].ClientURL); return err },
			"members": func(c *clientv3.Client) error {
				_, err := c.MemberAdd(g.ctx, []string{"http://127.0.0.1:1"})
				return err
			},
			"alarm": func(c *clientv3.Client) error {
				_, err := c.AlarmDisarm(g.ctx, &clientv3.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_NOSPACE})
				return err
			},
			"users":   func(c *clientv3.Client) error { _, err := c.UserList(g.ctx); return err },
			"a user":  func(c *clientv3.Client) error { _, err := c.UserGet(g.ctx, "b"); return err },
			"a role":  func(c *clientv3.Client) error { _, err := c.RoleGet(g.ctx, "b"); return err },
			"add":     func(c *clientv3.Client) error { _, err := c.UserAdd(g.ctx, "c", "c"); return err },
			"promote": func(c *clientv3.Client) error { _, err := c.UserGrantRole(g.ctx, "a", "root"); return err },
			"disable": func(c *clientv3.Client) error { _, err := c.AuthDisable(g.ctx); return err },
			"partitions": func(c *clientv3.Client) error {
				_, err := stoapb.NewPartitionsClient(c.ActiveConnection()).List(g.ctx, &stoapb.ListPartitionsRequest{})
				return err
			},
			"move keys": func(c *clientv3.Client) error {
				_, err := stoapb.NewPartitionsClient(c.ActiveConnection()).Move(g.ctx, &stoapb.MoveKeysRequest{Prefix: []byte("/a/1")})
				return err
			},
			"pin keys": func(c *clientv3.Client) error {
				_, err := stoapb.NewPartitionsClient(c.ActiveConnection()).Pin(g.ctx, &stoapb.PinKeysRequest{Prefix: []byte("/a/")})
				return err
			},
			"unpin keys": func(c *clientv3.Client) error {
				_, err := stoapb.NewPartitionsClient(c.ActiveConnection()).Unpin(g.ctx, &stoapb.UnpinKeysRequest{Prefix: []byte("/a/")})
				return err
			},
			"resize": func(c *clientv3.Client) error {
				_, err := stoapb.NewPartitionsClient(c.ActiveConnection()).Resize(g.ctx, &stoapb.ResizeRequest{Partitions: 2})
				return err
			},
			"register": func(c *clientv3.Client) error { _, err := c.Put(g.ctx, "/em/x", "return {}"); return err },
			"watch": func(c *clientv3.Client) error {
				r := <-c.Watch(g.ctx, "/b/", clientv3.WithPrefix())
				require.Empty(t, r.Events)
				return r.Err()
			},
		} {
			denied(t, do(g.a), name)
			err := do(g.cli)
			if name != "watch" { // a client without a user goes on trying
				require.ErrorContains(t, err, "user name is empty", name)
			}
		}
		got, err := g.b.Get(g.ctx, "/b/1")
		require.NoError(t, err)
		require.EqualValues(t, 1, got.Kvs[0].Version, "nothing has changed")
		got, err = g.root.Get(g.ctx, "/a/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Empty(t, got.Kvs, "nor has what was permitted by itself")
	})
}

// TestPrevKvNeedsRead: a user who may only write learns nothing of what was there.
func TestPrevKvNeedsRead(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		_, err := g.root.RoleGrantPermission(g.ctx, "a", "/w", "", clientv3.PermissionType(clientv3.PermWrite))
		require.NoError(t, err)
		_, err = g.root.Put(g.ctx, "/w", "secret")
		require.NoError(t, err)
		_, err = g.a.Put(g.ctx, "/w", "v", clientv3.WithPrevKV())
		denied(t, err)
		_, err = g.a.Delete(g.ctx, "/w", clientv3.WithPrevKV())
		denied(t, err)
		_, err = g.a.Txn(g.ctx).Then(clientv3.OpPut("/w", "v", clientv3.WithPrevKV())).Commit()
		denied(t, err)
		_, err = g.a.Put(g.ctx, "/w", "v")
		require.NoError(t, err)
	})
}

// TestOneKeyIsNoRange: a right to a key is none to those behind it, however a range says that it has no end
// (in etcd a watch could be opened, GHSA-xg4h-6gfc-h4m8).
func TestOneKeyIsNoRange(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		_, err := g.root.RoleGrantPermission(g.ctx, "a", "/k", "", clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
		_, err = g.a.Get(g.ctx, "/k")
		require.NoError(t, err)
		for _, open := range []clientv3.OpOption{clientv3.WithFromKey(), clientv3.WithPrefix(), clientv3.WithRange("/k\x00\x00")} {
			r := <-g.a.Watch(g.ctx, "/k", open, clientv3.WithRev(1))
			require.Empty(t, r.Events)
			denied(t, r.Err())
			_, err = g.a.Get(g.ctx, "/k", open)
			denied(t, err)
			_, err = g.a.Delete(g.ctx, "/k", open)
			denied(t, err)
			_, err = g.a.Txn(g.ctx).If(clientv3.Compare(clientv3.CreateRevision("/k"), ">", 0).WithRange("/l")).Commit()
			denied(t, err)
		}
	})
}

// TestRightsWithoutSpace: while the cluster has no space for writes, rights are what they were (in etcd 3.5 nothing was
// checked any more, pull request 22386).
func TestRightsWithoutSpace(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		_, err := g.root.Put(g.ctx, "/secret", "v")
		require.NoError(t, err)
		alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 1}
		_, err = pb.NewMaintenanceClient(g.root.ActiveConnection()).Alarm(g.ctx, alarm)
		require.NoError(t, err)
		_, err = g.root.Put(g.ctx, "/secret", "w")
		require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		_, err = g.a.Delete(g.ctx, "/secret")
		denied(t, err)
		_, err = g.a.AuthDisable(g.ctx)
		denied(t, err)
		_, err = g.a.RoleGrantPermission(g.ctx, "a", "/secret", "", clientv3.PermissionType(clientv3.PermRead))
		denied(t, err)
		_, err = g.a.AlarmDisarm(g.ctx, &clientv3.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_NOSPACE})
		denied(t, err)
		_, err = g.root.Delete(g.ctx, "/secret")
		require.NoError(t, err)
	})
}

// TestTransactionsWithinAreChecked: what a user may not do, it may not do in a transaction within one either, in the branch that
// isn't taken, too: reads, previous values, and puts with a lease that has keys of others (in etcd GHSA-rfx7-8w68-q57q and
// GHSA-x35m-3gp4-4fh5).
func TestTransactionsWithinAreChecked(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		_, err := g.root.RoleGrantPermission(g.ctx, "a", "/w", "", clientv3.PermissionType(clientv3.PermWrite))
		require.NoError(t, err)
		lease, err := g.root.Grant(g.ctx, 600)
		require.NoError(t, err)
		_, err = g.root.Put(g.ctx, "/secret", "v", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		allowed := clientv3.OpPut("/w", "v")
		_, err = g.a.Txn(g.ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{allowed}, []clientv3.Op{allowed})).Commit()
		require.NoError(t, err)
		for _, op := range []clientv3.Op{
			clientv3.OpGet("/secret"), clientv3.OpGet("/w"), clientv3.OpPut("/secret", "v"), clientv3.OpDelete("/secret"),
			clientv3.OpPut("/w", "v", clientv3.WithPrevKV()), clientv3.OpDelete("/w", clientv3.WithPrevKV()),
			clientv3.OpPut("/w", "v", clientv3.WithLease(lease.ID)),
			clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value("/secret"), "=", "v")}, nil, nil),
		} {
			list, none := []clientv3.Op{op}, []clientv3.Op{}
			for _, within := range []clientv3.Op{clientv3.OpTxn(nil, list, none), clientv3.OpTxn(nil, none, list)} {
				_, err = g.a.Txn(g.ctx).Then(within).Commit()
				denied(t, err)
				_, err = g.a.Txn(g.ctx).Else(within).Commit()
				denied(t, err)
			}
		}
	})
}

// TestNothingBehindARevoke writes and takes a right away, over and over: a watch sees no
// event from behind the place of the revoke, ends, and requests are refused from its
// acknowledgement on, on every member.
func TestNothingBehindARevoke(t *testing.T) {
	users(t, 3, cheap, func(t *testing.T, g *guarded) {
		var members []*clientv3.Client
		for _, s := range g.Servers {
			members = append(members, g.as("a", s.ClientURL))
		}
		for round := range 5 {
			before, err := g.root.Put(g.ctx, "/a/k", fmt.Sprint("before ", round))
			require.NoError(t, err)
			var watches []clientv3.WatchChan
			for _, c := range members {
				watches = append(watches, c.Watch(g.ctx, "/a/", clientv3.WithPrefix(), clientv3.WithRev(before.Header.Revision)))
			}
			for _, w := range watches {
				r := <-w
				require.NoError(t, r.Err())
				require.NotEmpty(t, r.Events)
			}
			g.revoke()
			for _, c := range members {
				_, err := c.Get(g.ctx, "/a/k")
				denied(t, err)
				_, err = c.Put(g.ctx, "/a/k", "late")
				denied(t, err)
			}
			_, err = g.root.Put(g.ctx, "/a/k", "secret")
			require.NoError(t, err)
			for _, w := range watches {
				for r := range w {
					require.Empty(t, r.Events)
					if r.Canceled {
						denied(t, r.Err())
					}
				}
			}
			g.grant()
			for _, c := range members {
				_, err := c.Get(g.ctx, "/a/k")
				require.NoError(t, err, "granted")
			}
		}
	})
}

// TestUsersOfSessions: a session is its user's alone, and ends with the user.
func TestUsersOfSessions(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		s := g.session("a", "")
		right, wrong, behind := s.PutAsync("/a/1", "v"), s.PutAsync("/b/1", "v"), s.PutAsync("/a/2", "v")
		_, err := right.Wait(g.ctx)
		require.NoError(t, err)
		_, err = wrong.Wait(g.ctx)
		denied(t, err)
		_, err = behind.Wait(g.ctx)
		require.NoError(t, err, "a refused write holds nothing up")
		_, err = s.Get(g.ctx, "/b/1")
		denied(t, err)
		_, err = s.Get(g.ctx, "/b/", clientv3.WithPrefix())
		denied(t, err)
		_, err = s.Put(g.ctx, "/a/3", "v", client.Ephemeral())
		require.NoError(t, err)

		// Another user takes the session up: the answers that are remembered aren't its own.
		for _, user := range []string{"b", "root"} {
			err = resume(g.as(user), int64(s.ID()))
			require.Equal(t, codes.NotFound, status.Code(err), "%s: %v", user, err)
		}
		require.NoError(t, resume(g.as("a"), int64(s.ID())))

		gone := g.session("b", "")
		_, err = gone.Put(g.ctx, "/b/1", "v")
		require.NoError(t, err)
		_, err = g.root.UserDelete(g.ctx, "b")
		require.NoError(t, err)
		_, err = gone.Put(g.ctx, "/b/1", "late")
		require.Error(t, err)
	})
}

// TestPasswordsOfSessions: a session goes on when its user's password is set to the same, and ends when it is another one.
func TestPasswordsOfSessions(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		s := g.session("a", "")
		w, err := s.Watch(g.ctx, "/a/", clientv3.WithPrefix())
		require.NoError(t, err)
		set := func(password string) {
			_, err := g.root.UserChangePassword(g.ctx, "a", password)
			require.NoError(t, err)
		}
		for i := range 20 {
			put := s.PutAsync("/a/1", fmt.Sprint(i), client.Ephemeral())
			get := s.GetAsync("/a/1")
			set("a")
			_, err = put.Wait(g.ctx)
			require.NoError(t, err)
			got, err := get.Wait(g.ctx)
			if !errors.Is(err, client.ErrOvertaken) {
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(i), string(got.Kvs[0].Value))
			}
			n, err := w.Next(g.ctx)
			require.NoError(t, err)
			require.NoError(t, n.Err)
			require.Equal(t, fmt.Sprint(i), string(n.Events[0].Kv.Value))
		}
		set("b")
		_, err = s.Put(g.ctx, "/a/2", "v")
		require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
		<-s.Done()
	})
}

// TestSessionsWhilePermissionsAreOff: a session that connects again while permissions aren't enforced is still its user's when they are.
func TestSessionsWhilePermissionsAreOff(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		s := g.session("a", "")
		_, err := s.Put(g.ctx, "/a/1", "v", client.Ephemeral())
		require.NoError(t, err)
		_, err = g.root.AuthDisable(g.ctx)
		require.NoError(t, err)
		for _, server := range g.Servers {
			require.NoError(t, server.Kill())
		}
		require.NoError(t, g.Start(g.ctx))
		_, err = s.Put(g.ctx, "/b/1", "v")
		require.NoError(t, err)
		g.reconnected(g.root)
		_, err = g.root.AuthEnable(g.ctx)
		require.NoError(t, err)
		for range 2 {
			got, err := s.Get(g.ctx, "/a/1")
			require.NoError(t, err)
			require.Len(t, got.Kvs, 1)
			_, err = s.Put(g.ctx, "/a/2", "v")
			require.NoError(t, err)
		}
		_, err = s.Put(g.ctx, "/b/1", "v")
		denied(t, err)
	})
}

// resume takes up a session as another client of its user would.
func resume(c *clientv3.Client, id int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := c.ActiveConnection().NewStream(ctx, &stoapb.Sessions_ServiceDesc.Streams[0], stoapb.Sessions_Open_FullMethodName, grpc.ForceCodecV2(sessionwire.Codec()))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&sessionwire.ClientBatch{Open: &stoapb.OpenSession{Session: id, Ttl: 60, Next: 1000}}); err != nil {
		return err
	}
	var got sessionwire.Received
	return stream.RecvMsg(&got)
}

// TestUsersOfExtensions: handlers of requests run as their caller, and the client's ID is
// the user's.
func TestUsersOfExtensions(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		for _, key := range []string{"/em/count", "/em/count/"} {
			for _, u := range []string{"a", "b"} {
				end := ""
				if key == "/em/count/" {
					end = "/em/count0"
				}
				_, err := g.root.RoleGrantPermission(g.ctx, u, key, end, clientv3.PermissionType(clientv3.PermReadWrite))
				require.NoError(t, err)
			}
		}
		register := `
return {
  scope = {"/a/"},
  operations = { {op = "put", key = "/a/count"} },
  put = function(request)
    put("/a/sum", (get("/a/sum") or "") .. "x")
    return 1
  end,
}`
		_, err := g.b.Put(g.ctx, "/em/count", register)
		denied(t, err, "b may write the key, but not what the handler would")
		_, err = g.a.Put(g.ctx, "/em/count", register)
		require.NoError(t, err)
		owner, err := g.root.Get(g.ctx, "/em/count/owner")
		require.NoError(t, err)
		require.Equal(t, "a", string(owner.Kvs[0].Value))

		// The right to the key of the request isn't one to the keys of the handler.
		_, err = g.root.RoleGrantPermission(g.ctx, "b", "/a/count", "", clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
		_, err = g.b.Put(g.ctx, "/em/count/ack", "")
		require.NoError(t, err)
		_, err = g.b.Put(g.ctx, "/a/count", "v")
		denied(t, err)
		_, err = g.a.Put(g.ctx, "/a/count", "v")
		require.NoError(t, err)

		// To be another client takes another user.
		forged := metadata.AppendToOutgoingContext(g.ctx, "stoa-client-id", "a")
		_, err = g.b.Put(forged, "/em/count/ack", "")
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		mine := metadata.AppendToOutgoingContext(g.ctx, "stoa-client-id", "b/2")
		_, err = g.b.Put(mine, "/em/count/ack", "")
		require.NoError(t, err)
	})
}

// TestUsersSurvive kills all members: users, roles and the revision are the same everywhere
// afterwards.
func TestUsersSurvive(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		for _, s := range g.Servers {
			require.NoError(t, s.Kill())
		}
		require.NoError(t, g.Start(g.ctx))
		revisions := map[uint64]bool{}
		for _, s := range g.Servers {
			c := g.as("root", s.ClientURL)
			st, err := c.AuthStatus(g.ctx)
			require.NoError(t, err)
			require.True(t, st.Enabled)
			revisions[st.AuthRevision] = true
			got, err := c.RoleGet(g.ctx, "a")
			require.NoError(t, err)
			require.Len(t, got.Perm, 1)
			require.Equal(t, authpb.Permission_READWRITE, got.Perm[0].PermType)
		}
		require.Len(t, revisions, 1)
		g.reconnected(g.a)
		_, err := g.a.Put(g.ctx, "/a/1", "v")
		require.NoError(t, err, "clients authenticate again by themselves")
		_, err = g.a.Put(g.ctx, "/b/1", "v")
		denied(t, err)
	})
}

// TestAChangeOfPasswordsEndsTokens, and one of other users doesn't.
func TestAChangeOfPasswordsEndsTokens(t *testing.T) {
	users(t, 1, cheap, func(t *testing.T, g *guarded) {
		got, err := g.cli.Authenticate(g.ctx, "a", "a")
		require.NoError(t, err)
		held := metadata.AppendToOutgoingContext(g.ctx, rpctypes.TokenFieldNameGRPC, got.Token)
		put := func() error {
			_, err := g.kv.Put(held, &pb.PutRequest{Key: []byte("/a/1")})
			return err
		}
		_, err = g.root.UserChangePassword(g.ctx, "b", "new")
		require.NoError(t, err)
		_, err = g.root.RoleGrantPermission(g.ctx, "a", "/more", "", clientv3.PermissionType(clientv3.PermRead))
		require.NoError(t, err)
		require.NoError(t, put())
		_, err = g.root.UserChangePassword(g.ctx, "a", "new")
		require.NoError(t, err)
		// By the code a client sees whether the server had applied the change when the request
		// came: if not, it was refused in the log's order. Clients get a new token for both.
		require.Contains(t, []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision}, rpctypes.Error(put()))
		_, err = g.cli.Authenticate(g.ctx, "a", "a")
		require.True(t, errors.Is(err, rpctypes.ErrAuthFailed), "%v", err)
		_, err = g.root.AuthDisable(g.ctx)
		require.NoError(t, err)
		_, err = g.kv.Put(g.ctx, &pb.PutRequest{Key: []byte("/b/1")})
		require.NoError(t, err)
	})
}
