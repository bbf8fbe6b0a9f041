package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/token"
)

type tokenKey struct{}

func withToken(ctx context.Context, text string) context.Context {
	return context.WithValue(ctx, tokenKey{}, text)
}

// simpleTokens lets users authenticate, and prove who they are with withToken.
func simpleTokens(c *Config) {
	c.Tokens.Simple, c.BcryptCost = token.NewSimple(5*time.Minute), 4
	c.Credentials = func(ctx context.Context) Credentials {
		text, _ := ctx.Value(tokenKey{}).(string)
		return Credentials{Token: text}
	}
}

// changeAuth has a server change users, roles or permissions.
func (c *cluster) changeAuth(i int, r *pb.InternalRaftRequest) {
	_, err := c.nodes[i].AuthChange(asServer(c.t.Context()), r)
	require.NoError(c.t, err)
}

func (c *cluster) addRoot() {
	c.changeAuth(0, &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: auth.Root, Password: auth.Root}})
	c.changeAuth(0, &pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: auth.Root, Role: auth.Root}})
}

// addUser adds a user whose role has its name and some permissions.
func (c *cluster) addUser(name string, may ...*authpb.Permission) {
	c.changeAuth(0, &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name, Password: name}})
	c.changeAuth(0, &pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: name}})
	for _, p := range may {
		c.changeAuth(0, &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: name, Perm: p}})
	}
	c.changeAuth(0, &pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: name, Role: name}})
}

func (c *cluster) enable(i int) {
	c.changeAuth(i, &pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
}

// token is one that a server gives a user, whose password is its name.
func (c *cluster) token(i int, user string) string {
	resp, err := c.nodes[i].Authenticate(c.t.Context(), &pb.AuthenticateRequest{Name: user, Password: user})
	require.NoError(c.t, err)
	return resp.GetToken()
}

// leading is the server that leads, as soon as one does: on a busy machine there may be none for a moment.
func (c *cluster) leading() (at int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { at = c.leader(); return at >= 0 }, time.Minute, time.Millisecond)
	return at
}

// A token of another cluster, as clients of one that was restored have it, is refused at once, by each member: its entry would be in the log.
func TestATokenOfALongerLog(t *testing.T) {
	c := newCluster(t, 3, 2, simpleTokens)
	c.ready()
	c.addRoot()
	c.enable(0)
	ctx := withToken(t.Context(), token.Text("abcdefghijklmnop", 1_000_000))
	for i, n := range c.nodes {
		began := time.Now()
		_, err := n.Put(ctx, &pb.PutRequest{Key: []byte("k")})
		for errors.Is(err, fault.UserEmpty) || err == nil { // it hasn't heard of authentication yet
			_, err = n.Put(ctx, &pb.PutRequest{Key: []byte("k")})
		}
		require.ErrorIs(t, err, fault.InvalidAuthToken, "server %d", i)
		require.Less(t, time.Since(began), c.configs[i].requestTimeout()/2, "server %d", i)
	}
}

// Permissions are enforced, and who has a token asks a member that hasn't heard of it yet.
func TestAMemberThatLearnsLateOfAuthentication(t *testing.T) {
	c := newCluster(t, 3, 1, simpleTokens)
	c.ready()
	c.addRoot()
	for id := range int64(2) {
		_, err := c.nodes[0].LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: id + 1, TTL: 1000})
		require.NoError(t, err)
	}
	leader := c.leading()
	late := c.nodes[(leader+1)%3]
	require.Eventually(t, func() bool { return late.AuthRevision() == c.nodes[0].AuthRevision() }, time.Minute, time.Millisecond)
	store := late.current().stores[0]
	store.Lock() // nothing is applied
	c.enable(leader)
	token := c.token(leader, auth.Root)
	ctx := withToken(t.Context(), token)
	answers := map[string]chan error{}
	for what, ask := range map[string]func() error{
		"range":        func() error { _, err := late.Range(ctx, &pb.RangeRequest{Key: []byte("k")}); return err },
		"put":          func() error { _, err := late.Put(ctx, &pb.PutRequest{Key: []byte("k")}); return err },
		"grant":        func() error { _, err := late.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 1000}); return err },
		"renew":        func() error { _, err := late.LeaseRenew(ctx, 1); return err },
		"revoke":       func() error { _, err := late.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 2}); return err },
		"time to live": func() error { _, err := late.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1}); return err },
		"leases":       func() error { _, err := late.LeaseLeases(ctx, nil, false); return err },
		"quotas":       func() error { _, _, err := late.Quotas(ctx); return err },
		"members":      func() error { _, err := late.MemberUpdate(ctx, 1, c.configs[0].Members[0].PeerURLs); return err },
	} {
		answer := make(chan error, 1)
		answers[what] = answer
		go func() { answer <- ask() }()
	}
	time.AfterFunc(300*time.Millisecond, store.Unlock)
	s := newSessionClient(c, (leader+1)%3)
	s.token = token
	s.open(0)
	s.send(askPut("k", "v"))
	s.waitForReplies(0)
	require.NoError(t, s.replies[0].err, "in a session")
	require.Equal(t, (leader+1)%3, s.on)
	for what, answer := range answers {
		require.NoError(t, <-answer, what)
	}
}
