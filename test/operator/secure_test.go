package operator

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// A cluster whose peers authenticate each other grows from one member to three. A server whose
// certificate is of another authority stays outside, and does no harm.
func TestMembersThatJoinOverTLS(t *testing.T) {
	requireStoa(t)
	t.Parallel()
	a, foreign := process.NewAuthority(t), process.NewAuthority(t)
	c := process.StartT(t, process.Spec{Partitions: 2, PeerTLS: true, Args: a.Flags("peer-")})
	first := c.Servers[0]
	put(t, first, "before", 5)

	second := added(t, c, first, "s2")
	stranger := second.Without("--peer-cert-file", "--peer-key-file", "--peer-trusted-ca-file").With(foreign.Flags("peer-")...)
	require.NoError(t, stranger.Start())
	awaitLog(t, first, 0, "rejected connection on peer endpoint")
	require.NoError(t, stranger.Kill())
	require.NotContains(t, first.LogTail(1<<20), "link from the peer is up")
	require.NoError(t, second.Start())
	ready(t, second)

	third := added(t, c, second, "s3")
	require.NoError(t, third.Start())
	ready(t, third)
	put(t, third, "after", 5)
	for _, s := range c.Servers {
		requireKeys(t, s, "before", 5)
		requireKeys(t, s, "after", 5)
	}
	require.Len(t, slices.DeleteFunc(members(t, third), func(m *pb.Member) bool { return m.Name == "" }), 3)
}

// An operator who copies the commands of docs/security.md gets a cluster in which clients and
// members show certificates, revoked ones are refused, and users have what they were granted.
func TestRunbookOfSecurity(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("the commands need openssl")
	}
	b := openBookOf(t, "security.md")
	secure, users, tokens := b.blocks("Set up TLS"), b.blocks("Set up users"), b.blocks("Tokens")
	require.Len(t, secure, 8)
	require.Len(t, users, 2)
	require.Len(t, tokens, 2)
	authorities, members, clients, settings, start, client, revoke, revoked := secure[0], secure[1], secure[2], secure[3], secure[4], secure[5], secure[6], secure[7]
	b.oneShell = true
	b.tls = func() *tls.Config { return certified(t, filepath.Join(b.dir, "ca"), "admin") }

	for _, text := range []string{authorities, members, clients, settings, start} {
		b.run(text)
	}
	b.run(client)
	b.run(users[0])
	require.Contains(t, b.run(users[1]), "/app/1\nhello\n")
	b.fails("stoactl --user worker:WORKER-PASSWORD get /other", "permission denied")
	b.fails("stoactl get /app/1", "permission denied") // admin, by the certificate, is no user

	b.run(revoke)
	b.run(revoked)
	b.fails("stoactl --command-timeout 2s --cert /root/ca/backup.crt --key /root/ca/backup.key get --prefix /app/", "")

	for _, text := range tokens {
		b.run(text)
	}
	b.stopServers()
	b.run(start)
	require.Contains(t, b.run("stoactl --user worker:WORKER-PASSWORD get /app/1"), "hello")
	b.fails("stoactl --user worker:WORKER-PASSWORD get /other", "permission denied")
}

// fails runs a block that must fail, and say something.
func (b *book) fails(text, says string) {
	b.t.Helper()
	out, err := b.command(text, 1).CombinedOutput()
	require.Error(b.t, err, "%s", text)
	require.Contains(b.t, string(out), says)
}

// certified is the configuration of a client with a certificate.
func certified(t *testing.T, dir, name string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	require.NoError(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "clients.pem"))
	require.NoError(t, err)
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: x509.NewCertPool()}
	require.True(t, cfg.RootCAs.AppendCertsFromPEM(ca))
	return cfg
}
