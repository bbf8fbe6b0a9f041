package compat

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// rsaKeys are a pair in files.
func rsaKeys(t *testing.T) (own *rsa.PrivateKey, private, public string) {
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	b, err := x509.MarshalPKIXPublicKey(own.Public())
	require.NoError(t, err)
	dir := t.TempDir()
	private, public = filepath.Join(dir, "private"), filepath.Join(dir, "public")
	require.NoError(t, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(own)}), 0o600))
	require.NoError(t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b}), 0o600))
	return own, private, public
}

// TestVerifyOnly: servers that can't sign tokens take those of others, and end leases by
// themselves.
func TestVerifyOnly(t *testing.T) {
	onlyStoa(t)
	own1, _, public := rsaKeys(t)
	own(t, 1, append(cheap, "--auth-token=jwt,sign-method=RS256,pub-key="+public), func(t *testing.T, e *env) {
		for _, u := range []string{"root", "a"} {
			_, err := e.cli.UserAdd(e.ctx, u, u)
			require.NoError(t, err)
			_, err = e.cli.RoleAdd(e.ctx, u)
			require.NoError(t, err)
			_, err = e.cli.UserGrantRole(e.ctx, u, u)
			require.NoError(t, err)
		}
		_, err := e.cli.RoleGrantPermission(e.ctx, "a", "/a/", "/a0", 2)
		require.NoError(t, err)
		_, err = e.cli.AuthEnable(e.ctx)
		require.NoError(t, err)
		st, err := e.cli.AuthStatus(e.ctx)
		require.NoError(t, err)
		signed := func(user string, revision uint64, ends time.Duration) string {
			text, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
				"username": user, "revision": revision, "exp": time.Now().Add(ends).Unix(),
			}).SignedString(own1)
			require.NoError(t, err)
			return text
		}
		put := func(token string, r *pb.PutRequest) error {
			_, err := e.kv.Put(metadata.AppendToOutgoingContext(e.ctx, rpctypes.TokenFieldNameGRPC, token), r)
			return err
		}
		token := signed("a", st.AuthRevision, time.Hour)
		l, err := e.lease.LeaseGrant(metadata.AppendToOutgoingContext(e.ctx, rpctypes.TokenFieldNameGRPC, token), &pb.LeaseGrantRequest{TTL: 5})
		require.NoError(t, err)
		require.NoError(t, put(token, &pb.PutRequest{Key: []byte("/a/1"), Lease: l.ID}))
		require.Equal(t, codes.PermissionDenied, status.Code(put(token, &pb.PutRequest{Key: []byte("/b/1")})))
		require.Equal(t, codes.Unauthenticated, status.Code(put(signed("a", st.AuthRevision, -time.Hour), &pb.PutRequest{Key: []byte("/a/1")})))
		require.Equal(t, codes.InvalidArgument, status.Code(put(signed("a", 1, time.Hour), &pb.PutRequest{Key: []byte("/a/1")})), "of before the user")
		require.Equal(t, codes.PermissionDenied, status.Code(put(signed("nobody", st.AuthRevision, time.Hour), &pb.PutRequest{Key: []byte("/a/1")})))
		_, err = e.cli.Authenticate(e.ctx, "a", "a")
		require.ErrorContains(t, err, "verify-only")
		require.Eventually(t, func() bool {
			got, err := e.kv.Range(metadata.AppendToOutgoingContext(e.ctx, rpctypes.TokenFieldNameGRPC, token), &pb.RangeRequest{Key: []byte("/a/1")})
			return err == nil && len(got.Kvs) == 0
		}, 40*time.Second, 200*time.Millisecond, "the lease ends")
	})
}

// TestSessionsOutliveTheirTokens: a session whose token has expired gets another one.
func TestSessionsOutliveTheirTokens(t *testing.T) {
	onlyStoa(t)
	_, private, _ := rsaKeys(t)
	users(t, 1, append(cheap, "--auth-token=jwt,sign-method=RS256,ttl=2s,priv-key="+private), func(t *testing.T, g *guarded) {
		s := g.session("a", "")
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			_, err := s.Put(g.ctx, "/a/1", "v")
			require.NoError(t, err)
		}
		require.NoError(t, s.Close(g.ctx))
	})
}
