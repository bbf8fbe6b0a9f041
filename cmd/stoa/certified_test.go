package main

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

// The session of a user who comes with a certificate goes on when the user gets a password, and ends when the user is deleted.
func TestSessionOfACertifiedUser(t *testing.T) {
	a := process.NewAuthority(t)
	flags := append(a.Flags(""), "--bcrypt-cost=4", "--listen-client-urls=https://127.0.0.1:0", "--advertise-client-urls=https://127.0.0.1:0")
	addr, _ := up(t, settings(t, t.TempDir(), flags...))
	as := func(name string) *sdk.Client {
		a.Issue(name, &x509.Certificate{Subject: pkix.Name{CommonName: name}})
		c, err := sdk.New(sdk.Config{Endpoints: []string{"https://" + addr}, TLS: a.Client(name)})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	root := as("root")
	changed := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	changed(root.RoleAdd(t.Context(), "app"))
	changed(root.RoleGrantPermission(t.Context(), "app", "a", "b", clientv3.PermissionType(clientv3.PermReadWrite)))
	for _, name := range []string{"root", "app"} {
		changed(root.UserAddWithOptions(t.Context(), name, "", &clientv3.UserAddOptions{NoPassword: true}))
		changed(root.UserGrantRole(t.Context(), name, name))
	}
	changed(root.AuthEnable(t.Context()))

	s, err := as("app").Session(t.Context(), sdk.WithTTL(time.Minute))
	require.NoError(t, err)
	changed(s.Put(t.Context(), "a", "1", sdk.Ephemeral()))
	changed(root.UserChangePassword(t.Context(), "app", "secret"))
	changed(s.Get(t.Context(), "a"))
	changed(s.Put(t.Context(), "a", "2"))

	changed(root.UserDelete(t.Context(), "app"))
	began := time.Now()
	_, err = s.Put(t.Context(), "a", "3")
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	require.Less(t, time.Since(began), 30*time.Second)
	<-s.Done()
}
