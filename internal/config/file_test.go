package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFileBeatsAll(t *testing.T) {
	path := writeFile(t, "name: filed\ndata-dir: /tmp/x\n")
	c, err := Parse([]string{"--config-file", path, "--name=flagged", "--snapshot-count=3"}, []string{"ETCD_NAME=env", "ETCD_MAX_TXN_OPS=junk"})
	require.NoError(t, err)
	require.Equal(t, "filed", c.Name)
	require.Equal(t, path, c.File)
	const ignored = "the flag is ignored, since all settings are taken from the configuration file"
	require.Subset(t, c.Notices, []Notice{
		{Warn: true, Text: ignored, Setting: "name", Value: "flagged"}, {Warn: true, Text: ignored, Setting: "snapshot-count", Value: "3"},
	})

	c, err = Parse(nil, []string{"ETCD_CONFIG_FILE=" + path})
	require.NoError(t, err)
	require.Equal(t, "filed", c.Name)
}

func TestFileInFull(t *testing.T) {
	c, err := Parse([]string{"--config-file", writeFile(t, `
name: n1
data-dir: /var/lib/stoa
wal-dir:
snapshot-count: 500
heartbeat-interval: 50
election-timeout: 500
quota-backend-bytes: 9007199254740993
listen-peer-urls: http://127.0.0.1:1380,https://127.0.0.1:1381
listen-client-urls: http://127.0.0.1:1379
advertise-client-urls: http://127.0.0.1:1379
initial-advertise-peer-urls: http://127.0.0.1:1380
initial-cluster: n1=http://127.0.0.1:1380
initial-cluster-state: existing
initial-cluster-token: 42
strict-reconfig-check: false
Max-Txn-Ops: 7
grpc-keepalive-interval: 600000000000
cipher-suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
client-transport-security:
  cert-file: c.pem
  key-file: k.pem
  client-cert-auth: true
  trusted-ca-file: ca.pem
peer-transport-security:
  auto-tls: true
  allowed-cn: [one, two]
socket-options:
  reuse-port: true
log-level: warn
log-outputs: [stdout, stderr]
partitions: 4
max-wals: 3
no-such-key: {a: [1]}
enable-v2: true
`)}, nil)
	require.NoError(t, err)
	require.Equal(t, "n1", c.Name)
	require.Equal(t, 50*time.Millisecond, c.HeartbeatInterval)
	require.EqualValues(t, 9007199254740993, c.QuotaBackendBytes)
	require.Len(t, c.ListenPeerURLs, 2)
	require.Equal(t, "42", c.InitialClusterToken)
	require.False(t, c.NewCluster)
	require.False(t, c.StrictReconfigCheck)
	require.EqualValues(t, 7, c.MaxTxnOps)
	require.Equal(t, 10*time.Minute, c.KeepAlive.Interval)
	require.NotEmpty(t, c.PeerTLS.CipherSuites)
	require.Equal(t, "c.pem", c.ClientTLS.CertFile)
	require.True(t, c.ClientTLS.ClientCertAuth)
	require.True(t, c.PeerAutoTLS)
	require.Equal(t, []string{"one", "two"}, c.PeerTLS.AllowedCNs)
	require.True(t, c.SocketOpts.ReusePort)
	require.Equal(t, []string{"stdout", "stderr"}, c.Log.Outputs)
	require.Equal(t, 4, c.Partitions)
	require.True(t, c.Given("partitions"))
	for _, name := range []string{"max-wals", "snapshot-count"} {
		require.Contains(t, warnings(c)[name], "--"+name+" has no effect")
	}
	var unknown []string
	for _, n := range c.Notices {
		if n.Text == "unknown key in the configuration file" {
			unknown = append(unknown, n.Setting)
		}
	}
	require.Equal(t, []string{"enable-v2", "no-such-key"}, unknown)
}

func TestBadFiles(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"name: [", "yaml"},
		{"- a\n- b\n", "want a map"},
		{"name: {a: b}", "name"},
		{"snapshot-count: many", "snapshot-count"},
		{"heartbeat-interval: -1", "heartbeat-interval"},
		{"grpc-keepalive-interval: 10m", "grpc-keepalive-interval"},
		{"pre-vote: maybe", "pre-vote"},
		{"listen-client-urls: localhost", "listen-client-urls"},
		{"peer-transport-security: yes", "peer-transport-security"},
		{"client-transport-security: {client-cert-auth: 3}", "client-transport-security.client-cert-auth"},
		{"initial-cluster-state: none", "initial-cluster-state"},
		{"partitions: 99", "partitions"},
	} {
		_, err := Parse([]string{"--config-file", writeFile(t, tc.text)}, nil)
		require.ErrorContains(t, err, tc.want, tc.text)
	}
}

func TestEmptyFileGivesDefaults(t *testing.T) {
	c, err := Parse([]string{"--config-file", writeFile(t, "# nothing\n")}, nil)
	require.NoError(t, err)
	require.Equal(t, "default.stoa", c.DataDir)
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("name: a\nlisten-peer-urls: http://127.0.0.1:1\n"))
	f.Add([]byte("client-transport-security: {cert-file: 1}\nlog-outputs: [a, b]"))
	f.Add([]byte("initial-cluster: a=b=c\npartitions: 1e3\n"))
	f.Add([]byte("? {a: b}\n: c\n"))
	f.Add([]byte("initial-cluster:"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := declare()
		if d.readYAML(b) != nil {
			return
		}
		c, err := d.finish()
		// A server that has data does without --initial-cluster.
		if err == nil && (c.Partitions < 1 || c.Partitions > MaxPartitions || len(c.InitialCluster) == 0 && c.initialClusterErr == nil) {
			t.Fatalf("accepted %+v", c)
		}
	})
}

func FuzzURLs(f *testing.F) {
	f.Add("http://127.0.0.1:2379,unix://a:1", "a=http://[::1]:2380")
	f.Add("https://localhost:0", "a=unix:///tmp/x,b=")
	f.Add(" http://a:b", "=")
	f.Fuzz(func(t *testing.T, listen, cluster string) {
		c, err := Parse([]string{"--listen-client-urls=" + listen, "--advertise-client-urls=" + listen, "--initial-cluster=" + cluster}, nil)
		if err != nil {
			return
		}
		if len(c.ListenClientURLs) == 0 {
			t.Fatalf("nowhere to listen after %q", listen)
		}
		_ = c.CheckBootstrap
	})
}
