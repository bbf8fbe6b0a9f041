package node

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
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

func (c *cluster) enable(i int) {
	c.changeAuth(i, &pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
}

// token is one that a server gives root.
func (c *cluster) token(i int) string {
	resp, err := c.nodes[i].Authenticate(c.t.Context(), &pb.AuthenticateRequest{Name: auth.Root, Password: auth.Root})
	require.NoError(c.t, err)
	return resp.GetToken()
}
