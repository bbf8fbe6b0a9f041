package config

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, line string, environ ...string) (*Config, error) {
	t.Helper()
	return Parse(strings.Fields(line), environ)
}

func TestDefaultsAreEtcds(t *testing.T) {
	c, err := parse(t, "")
	require.NoError(t, err)
	require.Equal(t, "default", c.Name)
	require.Equal(t, "default.stoa", c.DataDir)
	require.Equal(t, "http://localhost:2379", c.ListenClientURLs[0].String())
	require.Equal(t, "http://localhost:2380", c.AdvertisePeerURLs[0].String())
	require.Equal(t, "default=http://localhost:2380", c.InitialCluster.String())
	require.Equal(t, "etcd-cluster", c.InitialClusterToken)
	require.True(t, c.NewCluster)
	require.Equal(t, 100*time.Millisecond, c.HeartbeatInterval)
	require.Equal(t, time.Second, c.ElectionTimeout)
	require.EqualValues(t, 2<<30, c.QuotaBackendBytes)
	require.EqualValues(t, 128, c.MaxTxnOps)
	require.EqualValues(t, 1.5*1024*1024, c.MaxRequestBytes)
	require.Equal(t, []string{"default"}, c.Log.Outputs)
	require.Zero(t, c.AutoCompaction.Period)
	require.Positive(t, c.Partitions)
	require.False(t, c.Given("partitions"))
	require.NoError(t, c.CheckBootstrap(t.Context()))
}

// TestEveryEtcdFlagIsKnown holds the names that etcd 3.7.3 prints for --help
// and those that it silently takes.
func TestEveryEtcdFlagIsKnown(t *testing.T) {
	b, err := os.ReadFile("testdata/etcd-flags.txt")
	require.NoError(t, err)
	fs := declare().flagSet()
	for _, name := range strings.Fields(string(b)) {
		require.NotNil(t, fs.Lookup(name), "--%s", name)
	}
	fs.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(strings.Fields(string(b)), f.Name) {
			require.Contains(t, []string{"partitions", "grpc-transport", "convert-etcd-data", "enable-grpc-reflection", "audit-log", "balance", "enable-ui", "memory-limit"}, f.Name, "neither etcd's nor a known one of ours")
		}
	})
}

func TestFormsOfFlags(t *testing.T) {
	for _, line := range []string{
		"--name=a --max-txn-ops=5 --auto-tls=false",
		"--name a --max-txn-ops 5 -auto-tls=false",
		"-name a -max-txn-ops=0x5 --auto-tls=0",
		"--name b --name a --max-txn-ops=4 --max-txn-ops=5 --auto-tls=f",
	} {
		c, err := parse(t, line)
		require.NoError(t, err, line)
		require.Equal(t, "a", c.Name, line)
		require.EqualValues(t, 5, c.MaxTxnOps, line)
		require.False(t, c.ClientAutoTLS, line)
	}
}

// Errors name the setting; the first column of each case is the command line,
// the second a part of the error.
func TestBadCommandLines(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"--no-such-flag=1", "no-such-flag"},
		{"--heartbeat-interval=soon", "heartbeat-interval"},
		{"--max-txn-ops=-1", "max-txn-ops"},
		{"--listen-client-urls=127.0.0.1:2379", "listen-client-urls"},
		{"--listen-client-urls=ftp://127.0.0.1:2379", "listen-client-urls"},
		{"--listen-client-urls=http://example.com:2379 --advertise-client-urls=http://example.com:2379", "--listen-client-urls: expected IP"},
		{"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls is required"},
		{"--advertise-client-urls=http://:2379", "--advertise-client-urls"},
		{"--initial-advertise-peer-urls=http://:2380", "--initial-advertise-peer-urls"},
		{"--initial-cluster-state=maybe", "initial-cluster-state"},
		{"--initial-cluster=default=http://localhost:2380 --discovery-srv=example.com", "multiple discovery or bootstrap flags"},
		{"--discovery-token=x", "both --discovery-token and --discovery-endpoints"},
		{"--discovery-token=x --discovery-endpoints=http://a:1", "--discovery-endpoints"},
		{"--discovery-srv=example.com", "--discovery-srv"},
		{"--discovery-fallback=proxy", "--discovery-fallback"},
		{"--heartbeat-interval=0", "--heartbeat-interval must be >0"},
		{"--election-timeout=0", "--election-timeout must be >0"},
		{"--heartbeat-interval=300", "--election-timeout[1000ms] should be at least as 5 times as --heartbeat-interval[300ms]"},
		{"--election-timeout=60000", "--election-timeout[60000ms] is too long"},
		{"--auto-compaction-mode=never", "--auto-compaction-mode"},
		{"--auto-compaction-retention=long", "--auto-compaction-retention"},
		{"--auto-compaction-retention=5m --auto-compaction-mode=revision", "--auto-compaction-retention"},
		{"--log-level=loud", "--log-level"},
		{"--log-format=xml", "--log-format"},
		{"--log-outputs=default,stdout", "--log-outputs"},
		{"--logger=capnslog", "--logger"},
		{"--tls-min-version=TLS1.9", "--tls-min-version"},
		{"--tls-min-version=TLS1.3 --tls-max-version=TLS1.2", "min version"},
		{"--cipher-suites=ROT13", "--cipher-suites"},
		{"--cipher-suites=TLS_AES_128_GCM_SHA256 --tls-min-version=TLS1.3", "--cipher-suites"},
		{"--feature-gates=Foo=true", "--feature-gates: unrecognized feature gate: Foo"},
		{"--feature-gates=LeaseCheckpoint", "--feature-gates"},
		{"--partitions=17", "--partitions 17"},
		{"--partitions=-1", "--partitions -1"},
		{"--partitions=two", "partitions"},
		{"--max-request-bytes=0", "--max-request-bytes"},
		{"--backend-bbolt-freelist-type=tree", "--backend-bbolt-freelist-type"},
		{"--max-wals=many", "max-wals"},
		{"--metrics=some", "metrics"},
		{"--config-file=/no/such/file", "--config-file"},
		{"--name=\xff", "--name"},
		{"start", `"start" is not a valid flag`},
	} {
		_, err := parse(t, tc.line)
		require.ErrorContains(t, err, tc.want, tc.line)
	}
}

func TestUnreadableCommandLineIsAUsageError(t *testing.T) {
	var usage *UsageError
	_, err := parse(t, "--no-such-flag")
	require.ErrorAs(t, err, &usage)
	_, err = parse(t, "--partitions=99")
	require.Error(t, err)
	require.NotErrorAs(t, err, &usage)
	_, err = parse(t, "--help")
	require.ErrorIs(t, err, ErrHelp)
	c, err := parse(t, "--version --partitions=99")
	require.NoError(t, err)
	require.True(t, c.ShowVersion)
}

// warnings are the log lines about settings, by their names.
func warnings(c *Config) map[string]string {
	all := map[string]string{}
	for _, n := range c.Notices {
		if n.Warn {
			all[n.Setting] = n.Text
		}
	}
	return all
}

// Every requested feature that is missing gives a warning that names it.
func TestWhatIsNotDoneIsAWarning(t *testing.T) {
	c, err := parse(t, "--name=a --data-dir=d --max-snapshots=3 --pre-vote=false --downgrade-check-time=1s --v"+
		" --corrupt-check-time=1h --unsafe-no-fsync --feature-gates=InitialCorruptCheck=true,LeaseCheckpoint=false,PriorityRequest=false", "ETCD_MAX_WALS=4")
	require.NoError(t, err)
	got := warnings(c)
	for name, missing := range map[string]string{
		"max-snapshots": "deprecated", "max-wals": "--max-wals has no effect: log segments",
		"pre-vote":             "the pre-vote phase is always on",
		"downgrade-check-time": "looked at every second",
		"unsafe-no-fsync":      "every write is synced", "LeaseCheckpoint": "always checkpointed", "v": "etcd ignores it",
	} {
		require.Contains(t, got[name], missing, name)
		delete(got, name)
	}
	require.Empty(t, got)
	require.Equal(t, time.Hour, c.CorruptCheckTime)
	require.True(t, c.InitialCorruptCheck)
	require.Contains(t, c.Features, Feature{Name: "InitialCorruptCheck", Stage: "ALPHA", On: true})

	// Features that the server always has need no warning.
	c, err = parse(t, "--name=a --data-dir=d --pre-vote=true --auth-token=simple --max-wals=5 --corrupt-check-time=0"+
		" --feature-gates=LeaseCheckpoint=true,InitialCorruptCheck=false --backend-bbolt-freelist-type=map --v2-deprecation=gone")
	require.NoError(t, err)
	require.False(t, c.InitialCorruptCheck)
	require.Equal(t, []string{"v2-deprecation"}, slices.Collect(maps.Keys(warnings(c))))

	c, err = parse(t, "--name=a --data-dir=d --feature-gates=AllAlpha=true,PriorityRequest=false")
	require.NoError(t, err)
	require.Equal(t, []string{"CompactHashCheck", "SetMemberLocalAddr", "StopGRPCServiceOnDefrag"},
		slices.Sorted(maps.Keys(warnings(c))))
	require.True(t, c.InitialCorruptCheck)
}

func TestLogRotation(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"--enable-log-rotation", "--enable-log-rotation"},
		{"--enable-log-rotation --log-outputs=stderr,stdout", "--enable-log-rotation"},
		{"--enable-log-rotation --log-outputs=a,b", "--enable-log-rotation"},
		{"--enable-log-rotation --log-outputs=a --log-rotation-config-json={", "--log-rotation-config-json"},
		{"--enable-log-rotation --log-outputs=a --log-rotation-config-json={\"maxsize\":\"1\"}", "--log-rotation-config-json"},
	} {
		_, err := parse(t, tc.line)
		require.ErrorContains(t, err, tc.want, tc.line)
	}
	c, err := parse(t, "--enable-log-rotation --log-outputs=stderr,/var/log/x --log-rotation-config-json={\"maxage\":3,\"compress\":true}")
	require.NoError(t, err)
	require.Equal(t, &Rotation{File: "/var/log/x", MaxAge: 3, Compress: true}, c.Log.Rotation)
	c, err = parse(t, "--log-outputs=/var/log/x")
	require.NoError(t, err)
	require.Nil(t, c.Log.Rotation)
	require.Nil(t, c.AuditRotation)
}

func TestAuditLogRotation(t *testing.T) {
	c, err := parse(t, "--audit-log=a --enable-log-rotation --log-rotation-config-json={\"maxsize\":7}")
	require.NoError(t, err, "the one file can be the audit log")
	require.Nil(t, c.Log.Rotation)
	require.Equal(t, &Rotation{File: "a", MaxSize: 7}, c.AuditRotation)
	c, err = parse(t, "--audit-log=a --log-outputs=b --enable-log-rotation")
	require.NoError(t, err)
	require.Equal(t, "b", c.Log.Rotation.File)
	require.Equal(t, "a", c.AuditRotation.File)
	c, err = parse(t, "--audit-log=a")
	require.NoError(t, err)
	require.Nil(t, c.AuditRotation)
	_, err = parse(t, "--audit-log=a --log-outputs=a")
	require.ErrorContains(t, err, "--audit-log")
}

// Every setting is either used or declares what is missing without it.
func TestNoSettingIsSilentlyWithoutEffect(t *testing.T) {
	for _, s := range declare().settings {
		if s.unused {
			require.NotEmpty(t, s.missing, s.name)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Run("sets what no flag sets", func(t *testing.T) {
		c, err := parse(t, "--name=a", "ETCD_MAX_TXN_OPS=7", "STOA_PARTITIONS=3", "PATH=/bin", "ETCD_DATA_DIR=")
		require.NoError(t, err)
		require.EqualValues(t, 7, c.MaxTxnOps)
		require.Equal(t, 3, c.Partitions)
		require.True(t, c.Given("partitions"))
		require.Equal(t, "a.stoa", c.DataDir)
	})
	t.Run("STOA beats ETCD", func(t *testing.T) {
		c, err := parse(t, "", "STOA_NAME=s", "ETCD_NAME=e")
		require.NoError(t, err)
		require.Equal(t, "s", c.Name)
	})
	t.Run("unknown ones do no harm", func(t *testing.T) {
		c, err := parse(t, "", "ETCD_UNSUPPORTED_ARCH=arm", "STOA_COFFEE=1", "ETCD_VERSION=3", "ETCDCTL_API=3")
		require.NoError(t, err)
		require.False(t, c.ShowVersion)
		var warned []string
		for _, n := range c.Notices {
			if n.Text == "unrecognized environment variable" {
				warned = append(warned, n.Setting)
				require.Empty(t, n.Value, "it isn't for the log")
			}
		}
		require.Equal(t, []string{"ETCD_UNSUPPORTED_ARCH", "STOA_COFFEE", "ETCD_VERSION"}, warned)
	})
	t.Run("beside the flag is a conflict", func(t *testing.T) {
		_, err := parse(t, "--name=a", "ETCD_NAME=a")
		require.ErrorContains(t, err, "ETCD_NAME")
		_, err = parse(t, "--name=a", "STOA_NAME=b")
		require.ErrorContains(t, err, "STOA_NAME")
	})
	t.Run("a bad value names the variable", func(t *testing.T) {
		_, err := parse(t, "", "ETCD_MAX_TXN_OPS=many")
		require.ErrorContains(t, err, "ETCD_MAX_TXN_OPS")
	})
}

func TestNameAloneFoundsACluster(t *testing.T) {
	c, err := parse(t, "--name=abc --initial-advertise-peer-urls=http://127.0.0.1:9")
	require.NoError(t, err)
	require.Equal(t, "abc=http://127.0.0.1:9", c.InitialCluster.String())
}

func TestCheckBootstrap(t *testing.T) {
	three := "--initial-cluster=a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3 --initial-advertise-peer-urls="
	for _, tc := range []struct{ line, want string }{
		{"--name=b " + three + "http://127.0.0.1:2", ""},
		{"--name=d " + three + "http://127.0.0.1:2", `couldn't find local name "d"`},
		{"--name=b " + three + "http://127.0.0.1:4", "missing from --initial-advertise-peer-urls"},
		{"--name=b " + three + "http://127.0.0.1:4 --initial-cluster-state=existing", ""},
		{"--name=b " + three + "http://127.0.0.1:2,http://127.0.0.1:9", "missing from --initial-cluster"},
		{"--name=a --initial-cluster=a=http://127.0.0.1:1,b=http://127.0.0.1:1 --initial-advertise-peer-urls=http://127.0.0.1:1", "duplicate url"},
		{"--name=a --initial-cluster=a=http://localhost:1 --initial-advertise-peer-urls=http://127.0.0.1:1", ""},
		{"--initial-cluster=a", "--initial-cluster"},
		{"--initial-cluster=", "--initial-cluster is empty"},
		{"--initial-cluster=default=http://localhost:2380,\xff=http://localhost:2381", "not UTF-8"},
		{"--initial-cluster-token=\xff", "not UTF-8"},
	} {
		c, err := parse(t, tc.line)
		require.NoError(t, err, tc.line)
		err = c.CheckBootstrap(t.Context())
		if tc.want == "" {
			require.NoError(t, err, tc.line)
			continue
		}
		require.ErrorContains(t, err, tc.want, tc.line)
	}
}

func TestAdvertisedHostOfAServerOnAllAddresses(t *testing.T) {
	c, err := parse(t, "--listen-peer-urls=http://0.0.0.0:2390")
	require.NoError(t, err)
	c.AdvertisePeerURLs, c.AdvertiseClientURLs = declare().cfg.AdvertisePeerURLs, nil
	c.advertiseRealHost(func() string { return "10.1.2.3" })
	require.Equal(t, "http://10.1.2.3:2390", c.AdvertisePeerURLs[0].String())
}

func TestCompaction(t *testing.T) {
	for _, tc := range []struct {
		line string
		want AutoCompaction
	}{
		{"", AutoCompaction{Mode: "periodic"}},
		{"--auto-compaction-retention=2", AutoCompaction{Mode: "periodic", Period: 2 * time.Hour}},
		{"--auto-compaction-retention=30s", AutoCompaction{Mode: "periodic", Period: 30 * time.Second}},
		{"--auto-compaction-retention=1000 --auto-compaction-mode=revision", AutoCompaction{Mode: "revision", Revisions: 1000}},
	} {
		c, err := parse(t, tc.line)
		require.NoError(t, err, tc.line)
		require.Equal(t, tc.want, c.AutoCompaction, tc.line)
	}
}

// Times that are meant to be without an end are long, and not what is left of them in 64 bits.
func TestLongTimes(t *testing.T) {
	for _, retention := range []string{"5124096", "9999999", "9223372036854775807", "2562047h47m16s"} {
		c, err := parse(t, "--auto-compaction-retention="+retention)
		require.NoError(t, err)
		require.Equal(t, longest, c.AutoCompaction.Period, retention)
	}
	for _, ttl := range []string{"9223372036", "9223372037", "18446744074", "18446744073709551615"} {
		c, err := parse(t, "--auth-token-ttl="+ttl)
		require.NoError(t, err)
		require.Equal(t, longest, time.Duration(c.AuthTokenTTL)*time.Second, ttl)
	}
	c, err := parse(t, "--self-signed-cert-validity=300")
	require.NoError(t, err)
	require.EqualValues(t, 100, c.CertYears)
}

func TestQuota(t *testing.T) {
	for line, want := range map[string]int64{
		"--quota-backend-bytes=0": 2 << 30, "--quota-backend-bytes=-1": 0, "--quota-backend-bytes=53248": 53248,
	} {
		c, err := parse(t, line)
		require.NoError(t, err)
		require.Equal(t, want, c.QuotaBackendBytes, line)
	}
}

func writeFile(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "stoa.yml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestHelpNamesEveryVisibleFlag(t *testing.T) {
	text := HelpText()
	etcds, err := os.ReadFile("testdata/etcd-flags.txt")
	require.NoError(t, err)
	for _, s := range declare().settings {
		require.Equal(t, !s.hidden, strings.Contains(text, "--"+s.name+" '"), s.name)
		require.Equal(t, !slices.Contains(strings.Fields(string(etcds)), s.name), s.group == "stoa", "%s: those that etcd doesn't have are in a group of their own", s.name)
	}
}

// The IDs are what etcd 3.7.3 printed for this command line.
func TestFoundersHaveEtcdsIDs(t *testing.T) {
	c, err := parse(t, "")
	require.NoError(t, err)
	members, cluster := c.Founders()
	require.Equal(t, []Founder{{ID: 0x8e9e05c52164694d, Name: "default", PeerURLs: []string{"http://localhost:2380"}}}, members)
	require.EqualValues(t, uint64(0xcdf818194e3a8c32), cluster)
}

func TestSameURLs(t *testing.T) {
	for _, tc := range []struct {
		a, b []string
		same bool
	}{
		{[]string{"http://127.0.0.1:1", "http://127.0.0.2:1"}, []string{"http://127.0.0.2:1", "http://127.0.0.1:1"}, true},
		{[]string{"http://127.0.0.1:1"}, []string{"https://127.0.0.1:1"}, false},
		{[]string{"http://127.0.0.1:1"}, []string{"http://127.0.0.1:1", "http://127.0.0.2:1"}, false},
		{[]string{"http://127.0.0.1:1"}, nil, false},
	} {
		require.Equal(t, tc.same, SameURLs(t.Context(), tc.a, tc.b), "%v %v", tc.a, tc.b)
	}
}
