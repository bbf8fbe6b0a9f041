package compat

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/test/process"
)

// withClocks starts servers whose wall clocks can be set.
func withClocks(t *testing.T, spec process.Spec) *process.Cluster {
	t.Helper()
	if asked := os.Getenv(process.ServerEnv); asked != "" && asked != "stoa" {
		t.Skip("its clock can't be set")
	}
	bin, err := process.WithClock()
	require.NoError(t, err)
	spec.Binary = bin
	return process.StartT(t, spec)
}

func clocked(t *testing.T, s shape, args ...string) *env {
	t.Helper()
	return newEnv(t, s, withClocks(t, process.Spec{Nodes: s.nodes, Partitions: s.parts, Args: args}))
}

// setClocks sets each server's clock an hour ahead of the one before.
func (e *env) setClocks(ahead time.Duration) {
	e.t.Helper()
	for i, s := range e.Servers {
		require.NoError(e.t, s.SetClock(ahead+time.Duration(i)*time.Hour))
	}
}

// TestClocksAndLeases: leases, locks and what waits for them don't notice that clocks are set. What is
// dated is dated by each server's own.
func TestClocksAndLeases(t *testing.T) {
	t.Parallel()
	e := clocked(t, shape{3, 2})
	e.repeat(func() error { _, err := e.cli.Put(e.ctx, "/em/dated", datedSource); return err })
	var held, waits *concurrency.Session
	for _, s := range []**concurrency.Session{&held, &waits} {
		e.repeat(func() (err error) { *s, err = concurrency.NewSession(e.cli, concurrency.WithTTL(60)); return err })
	}
	lock, next := concurrency.NewMutex(held, e.root+"lock"), concurrency.NewMutex(waits, e.root+"lock")
	e.repeat(func() error { return lock.Lock(e.ctx) })
	got := make(chan struct{})
	go func() {
		defer close(got)
		for next.Lock(e.ctx) != nil && e.ctx.Err() == nil {
		}
	}()

	ended := e.cli.Watch(e.ctx, e.root+"leased/", clientv3.WithPrefix(), clientv3.WithFilterPut())
	granted := map[string]time.Time{}
	tries := 0
	leased := func() {
		e.repeat(func() error {
			tries++
			began, key := time.Now(), fmt.Sprint(e.root, "leased/", tries)
			lease, err := e.cli.Grant(e.ctx, leasedFor)
			if err != nil {
				return err
			}
			if _, err = e.cli.Put(e.ctx, key, "", clientv3.WithLease(lease.ID)); err == nil {
				granted[key] = began
			}
			return err
		})
	}
	leased()
	e.setClocks(5 * time.Hour)
	time.Sleep(time.Second) // for servers to look
	leased()
	e.setClocks(-7 * time.Hour)
	for len(granted) > 0 {
		r, ok := <-ended // of the test's time at the latest
		require.True(t, ok && r.Err() == nil, "leases don't end: %v", granted)
		for _, ev := range r.Events {
			if at, known := granted[string(ev.Kv.Key)]; known {
				require.GreaterOrEqual(t, time.Since(at), leasedFor*time.Second)
				delete(granted, string(ev.Kv.Key))
			}
		}
	}

	e.repeat(func() error { return lock.Unlock(e.ctx) })
	<-got
	require.NoError(t, e.ctx.Err())
	select {
	case <-held.Done():
		require.Fail(t, "the lease of the lock has ended")
	default:
	}
	e.dated(-7 * time.Hour)
	e.sameHash()
}

const (
	leasedFor   = 3 // seconds
	datedSource = `return {
  scope = { "/dated/" },
  operations = { { op = "put", prefix = "/dated/" } },
  put = function(r)
    log("executed")
    put(r.key, r.value)
  end,
}
`
)

// repeat does what may be refused while there is no leader: on a busy machine one is silent for a second.
func (e *env) repeat(do func() error) {
	e.t.Helper()
	for err := do(); err != nil; err = do() {
		require.NoError(e.t, e.ctx.Err(), err)
		time.Sleep(50 * time.Millisecond)
	}
}

// dated looks at when each server says that it has executed a call.
func (e *env) dated(ahead time.Duration) {
	e.t.Helper()
	began := time.Now()
	e.repeat(func() error { _, err := e.cli.Put(e.ctx, "/dated/1", ""); return err })
	for i := range e.Servers {
		logs, err := stoapb.NewExtensionsClient(e.dial(i)).Logs(e.ctx, &stoapb.ExtensionLogsRequest{Name: "dated", Follow: true})
		require.NoError(e.t, err)
		var calls []*stoapb.ExtensionCall
		for len(calls) == 0 { // it hasn't executed the call yet
			got, err := logs.Recv()
			require.NoError(e.t, err)
			calls = got.Calls
		}
		at := time.Unix(0, calls[0].Time).Add(-ahead - time.Duration(i)*time.Hour)
		require.False(e.t, at.Before(began) || at.After(time.Now()), "server %d: %v is not from %v on", i, at, began)
	}
}

func (e *env) sameHash() {
	e.t.Helper()
	var rev int64
	e.repeat(func() error {
		resp, err := e.cli.Put(e.ctx, e.root+"last", "")
		if err == nil {
			rev = resp.Header.Revision
		}
		return err
	})
	hashes := map[uint32]bool{}
	for _, endpoint := range e.Endpoints() {
		e.repeat(func() error { // a server may be behind
			h, err := e.cli.HashKV(e.ctx, endpoint, rev)
			if err == nil {
				hashes[h.Hash] = true
			}
			return err
		})
	}
	require.Len(e.t, hashes, 1)
}

// TestClocksAndSimpleTokens: such a token is good for as long as it should be.
func TestClocksAndSimpleTokens(t *testing.T) {
	t.Parallel()
	t.Run("ahead", func(t *testing.T) {
		g := guard(t, clocked(t, shape{1, 1}, cheap...))
		token := g.token("a")
		g.setClocks(5 * time.Hour)
		require.NoError(t, g.read(token))
	})
	t.Run("back", func(t *testing.T) {
		g := guard(t, clocked(t, shape{1, 1}, append(cheap, "--auth-token-ttl=2")...))
		token := g.token("a")
		g.setClocks(-7 * time.Hour)
		time.Sleep(3 * time.Second)
		require.Equal(t, codes.Unauthenticated, status.Code(g.read(token)))
	})
}

// TestClocksAndWebTokens: they are valid by the clock, and a client gets another one.
func TestClocksAndWebTokens(t *testing.T) {
	t.Parallel()
	_, private, _ := rsaKeys(t)
	g := guard(t, clocked(t, shape{1, 1}, append(cheap, "--auth-token=jwt,sign-method=RS256,ttl=10m,priv-key="+private)...))
	token := g.token("a")
	require.NoError(t, g.read(token))
	g.setClocks(time.Hour)
	require.Equal(t, codes.Unauthenticated, status.Code(g.read(token)))
	_, err := g.a.Put(g.ctx, "/a/1", "")
	require.NoError(t, err)
	g.setClocks(-time.Hour)
	require.NoError(t, g.read(token))
}

func (g *guarded) token(user string) string {
	g.t.Helper()
	resp, err := pb.NewAuthClient(g.conn).Authenticate(g.ctx, &pb.AuthenticateRequest{Name: user, Password: user})
	require.NoError(g.t, err)
	return resp.Token
}

func (g *guarded) read(token string) error {
	_, err := g.kv.Range(metadata.AppendToOutgoingContext(g.ctx, rpctypes.TokenFieldNameGRPC, token), &pb.RangeRequest{Key: []byte("/a/1")})
	return err
}

// TestClocksAndCompaction: what is to be kept for a time is kept for so long, and no longer.
func TestClocksAndCompaction(t *testing.T) {
	t.Parallel()
	keeping := func(period string, ahead time.Duration) (e *env, old func() error) {
		e = clocked(t, shape{1, 1}, "--auto-compaction-mode=periodic", "--auto-compaction-retention="+period)
		rev := e.put("a", "1")
		e.put("a", "2")
		e.setClocks(ahead)
		return e, func() error {
			_, err := e.cli.Get(e.ctx, "a", clientv3.WithRev(rev))
			return err
		}
	}
	began := time.Now()
	_, old := keeping("40s", 5*time.Hour) // it looks every 4 s
	time.Sleep(5 * time.Second)
	if err := old(); time.Since(began) < 40*time.Second {
		require.NoError(t, err)
	}
	e, old := keeping("1s", -7*time.Hour)
	require.Eventually(t, func() bool {
		e.put("a", "more")
		return old() != nil
	}, 30*time.Second, 100*time.Millisecond)
	wantError(t, rpctypes.ErrGRPCCompacted, old())
}

// TestClocksAndCertificates: they are valid by the clock of the server that looks at them, when a
// connection begins.
func TestClocksAndCertificates(t *testing.T) {
	t.Parallel()
	a := process.NewAuthority(t) // valid for an hour
	c := withClocks(t, process.Spec{Nodes: 1, Partitions: 1, TLS: true, Args: a.Flags("")})
	s := c.Servers[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, TLS: a.Client("client"), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	_, err = cli.Get(ctx, "connected")
	require.NoError(t, err)
	for _, ahead := range []time.Duration{5 * time.Hour, -56 * 365 * 24 * time.Hour} {
		require.NoError(t, s.SetClock(ahead))
		_, err := cli.Put(ctx, "connected", "")
		require.NoError(t, err)
		require.ErrorContains(t, greet(s, a.Client("client")), "expired certificate")
	}
}

// TestClocksAndMembers: a member whose clock is outside of the certificates' time doesn't find the others,
// who serve, until it is right.
func TestClocksAndMembers(t *testing.T) {
	t.Parallel()
	a := process.NewAuthority(t)
	c := withClocks(t, process.Spec{Nodes: 3, Partitions: 1, PeerTLS: true, Args: a.Flags("peer-")})
	e := newEnv(t, shape{3, 1}, c)
	wrong, others := c.Servers[2], e.client(c.Endpoints()[:2]...)
	require.NoError(t, wrong.Kill())
	require.NoError(t, wrong.SetClock(5*time.Hour))
	require.NoError(t, wrong.Start())
	require.Eventually(t, func() bool {
		return strings.Contains(wrong.LogTail(1<<20), "certificate has expired or is not yet valid")
	}, 30*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := others.Put(e.ctx, "without", "it")
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
	require.NoError(t, wrong.SetClock(0))
	require.NoError(t, wrong.WaitReady(e.ctx))
}

// greet returns how a server ends a connection that shows a certificate.
func greet(s *process.Server, conf *tls.Config) error {
	conf.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.ClientURL, "https://"), conf)
	if err != nil {
		return err
	}
	defer conn.Close()
	for err == nil {
		_, err = conn.Read(make([]byte, 1024))
	}
	return err
}
