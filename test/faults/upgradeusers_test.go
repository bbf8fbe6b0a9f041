//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/test/process"
)

const (
	tenantPrefix = "/tenant/"
	tenantKeys   = 50 // its quota; it tries twice as many
	secretPrefix = "/secret/"
)

// While members go to the next release and back, users have the rights that they have been
// given, and tenants the room.
func TestUpgradeWithUsers(t *testing.T) {
	before, now := releases(t)
	c := process.StartT(t, process.Spec{Binary: before, Nodes: 3, Partitions: 2})
	r := &rolling{t: t, c: c, rec: &recorder{start: time.Now()}}
	r.awaitVersion("0.6.0")
	u := &usersLoad{t: t, c: c}
	u.prepare()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for _, do := range []func(context.Context){u.fill, u.intrude, u.changeRights} {
		work.Go(func() { do(ctx) })
	}

	r.replace(now, 0, 1)
	r.replace(before, 1)
	r.replace(now, 1, 2)
	r.awaitVersion("0.7.0")
	r.downgrade(u.as("root"))
	r.replace(before, 0, 1, 2)
	r.replace(now, 2, 1, 0)
	r.awaitVersion("0.7.0")

	cancel()
	work.Wait()
	u.judge()
}

// usersLoad is what users do, and may not do.
type usersLoad struct {
	t      *testing.T
	c      *process.Cluster
	filled int // puts of the tenant that were answered with success
	denied int // attempts of those without rights that were refused
	turns  int // of a right that was granted and revoked
}

// as is a client of a user, whose password is its name.
func (u *usersLoad) as(user string) *clientv3.Client {
	u.t.Helper()
	cfg := clientv3.Config{Endpoints: u.c.Endpoints(), Logger: zap.NewNop(), DialTimeout: 30 * time.Second,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second, Username: user, Password: user}
	if user == "" {
		cfg.Password = ""
	}
	var cli *clientv3.Client
	require.Eventually(u.t, func() (ok bool) {
		var err error
		cli, err = clientv3.New(cfg)
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	u.t.Cleanup(func() { cli.Close() })
	return cli
}

func (u *usersLoad) prepare() {
	cli, ctx := u.as(""), u.t.Context()
	must := func(_ any, err error) { require.NoError(u.t, err) }
	all := clientv3.PermissionType(clientv3.PermReadWrite)
	for user, prefix := range map[string]string{"tenant": tenantPrefix, "guest": "", "stranger": "", "root": ""} {
		must(cli.UserAdd(ctx, user, user))
		must(cli.RoleAdd(ctx, user))
		if prefix != "" {
			must(cli.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), all))
		}
		must(cli.UserGrantRole(ctx, user, user))
	}
	must(stoapb.NewQuotasClient(cli.ActiveConnection()).Set(ctx, &stoapb.SetQuotaRequest{Quota: &stoapb.Quota{Prefix: []byte(tenantPrefix), MaxKeys: tenantKeys}}))
	must(cli.AuthEnable(ctx))
	must(u.as("root").Put(ctx, secretPrefix+"1", "secret"))
}

// attempt bounds one request of a load, so that the next one meets another server.
func attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 2*time.Second)
}

// fill has the tenant put and delete twice as many keys as it has room for.
func (u *usersLoad) fill(ctx context.Context) {
	cli, rnd := u.as("tenant"), rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		one, cancel := attempt(ctx)
		key := fmt.Sprintf("%s%d/key", tenantPrefix, rnd.IntN(2*tenantKeys)) // in both partitions
		if rnd.IntN(4) == 0 {
			_, _ = cli.Delete(one, key)
		} else if _, err := cli.Put(one, key, strings.Repeat("v", rnd.IntN(100))); err == nil {
			u.filled++
		}
		cancel()
	}
}

// intrude has users try what they have no right to.
func (u *usersLoad) intrude(ctx context.Context) {
	stranger, tenant := u.as("stranger"), u.as("tenant")
	for i := 0; ctx.Err() == nil; i++ {
		cli := [...]*clientv3.Client{stranger, tenant}[i%2]
		one, cancel := attempt(ctx)
		_, put := cli.Put(one, secretPrefix+"2", "intruder")
		_, get := cli.Get(one, secretPrefix, clientv3.WithPrefix(), clientv3.WithSerializable())
		_, txn := cli.Txn(one).Then(clientv3.OpPut(secretPrefix+"2", "intruder")).Commit()
		cancel()
		for _, err := range []error{put, get, txn} {
			if err == nil {
				u.t.Error("a request without the right to it succeeded")
				return
			}
			if err == rpctypes.ErrPermissionDenied {
				u.denied++
			}
		}
	}
}

// changeRights grants a right and takes it back: once that is acknowledged nothing may be done
// with it, on any member.
func (u *usersLoad) changeRights(ctx context.Context) {
	root, guest := u.as("root"), u.as("guest")
	const key = "/guest/key"
	must := func(do func(context.Context) error) bool {
		for ctx.Err() == nil {
			one, cancel := attempt(ctx)
			err := do(one)
			cancel()
			if err == nil || err == rpctypes.ErrPermissionNotGranted {
				return true
			}
		}
		return false
	}
	for must(func(ctx context.Context) error {
		_, err := root.RoleGrantPermission(ctx, "guest", key, "", clientv3.PermissionType(clientv3.PermReadWrite))
		return err
	}) && must(func(ctx context.Context) error { _, err := guest.Put(ctx, key, "permitted"); return err }) &&
		must(func(ctx context.Context) error {
			_, err := root.RoleRevokePermission(ctx, "guest", key, "")
			return err
		}) {
		one, cancel := attempt(ctx)
		_, err := guest.Put(one, key, "forbidden")
		cancel()
		if err == nil {
			u.t.Error("a put succeeded after its right had been revoked")
			return
		}
		u.turns++
	}
}

// judge compares all members.
func (u *usersLoad) judge() {
	t, ctx := u.t, u.t.Context()
	t.Logf("%d puts of the tenant, %d refusals, %d rights granted and revoked", u.filled, u.denied, u.turns)
	require.Greater(t, u.filled, 50, "hardly anything was done")
	require.Greater(t, u.denied, 50)
	require.Greater(t, u.turns, 5)
	root := u.as("root")
	keys, err := root.Get(ctx, tenantPrefix, clientv3.WithPrefix())
	require.NoError(t, err)
	require.LessOrEqual(t, len(keys.Kvs), tenantKeys)
	bytes := 0
	for _, kv := range keys.Kvs {
		bytes += len(kv.Key) + len(kv.Value)
	}
	secrets, err := root.Get(ctx, secretPrefix, clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, secrets.Kvs, 1)
	got, err := root.Get(ctx, "/guest/key")
	require.NoError(t, err)
	require.Equal(t, "permitted", string(got.Kvs[0].Value))
	status, err := root.AuthStatus(ctx)
	require.NoError(t, err)
	for _, s := range u.c.Servers {
		one, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, Logger: zap.NewNop(), Username: "root", Password: "root", DialTimeout: 10 * time.Second})
		require.NoError(t, err)
		defer one.Close()
		list, err := stoapb.NewQuotasClient(one.ActiveConnection()).List(ctx, &stoapb.ListQuotasRequest{})
		require.NoError(t, err, s.Name)
		require.Len(t, list.Quotas, 1, s.Name)
		require.Equal(t, [2]int64{int64(len(keys.Kvs)), int64(bytes)}, [2]int64{list.Quotas[0].Keys, list.Quotas[0].Bytes}, s.Name)
		there, err := one.AuthStatus(ctx)
		require.NoError(t, err, s.Name)
		require.Equal(t, status.AuthRevision, there.AuthRevision, s.Name)
		require.True(t, there.Enabled, s.Name)
	}
}
