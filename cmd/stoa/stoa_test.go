package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/config"
)

func settings(t testing.TB, dir string, args ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(append([]string{
		"--data-dir=" + dir, "--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:0",
		"--listen-peer-urls=http://127.0.0.1:0", "--partitions=2",
	}, args...), nil)
	require.NoError(t, err)
	return cfg
}

// up starts a server in this process and returns its client address and what
// stops it.
func up(t *testing.T, cfg *config.Config) (addr string, down func()) {
	t.Helper()
	s, down := started(t, cfg)
	return s.ports.client[0].Addr().String(), down
}

func started(t *testing.T, cfg *config.Config) (s *server, down func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := start(ctx, cfg, zap.NewNop())
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx) }()
	select {
	case <-s.node.Ready():
	case <-time.After(10 * time.Second):
		t.Fatal("no leader")
	}
	stopped := false
	down = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(t, <-served)
		began := time.Now()
		require.NoError(t, s.stop())
		require.Less(t, time.Since(began), 1500*time.Millisecond)
	}
	t.Cleanup(down)
	return s, down
}

func client(t *testing.T, addr string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func page(t *testing.T, url string) string {
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(b)
}

func TestServesStopsAndStartsAgain(t *testing.T) {
	dir := t.TempDir()
	addr, down := up(t, settings(t, dir))
	c := client(t, addr)
	_, err := c.Put(t.Context(), "a", "1")
	require.NoError(t, err)
	w := c.Watch(t.Context(), "a") // must not hold up the stop
	require.Equal(t, `{"health":"true","reason":""}`, page(t, "http://"+addr+"/health"))
	require.Contains(t, page(t, "http://"+addr+"/metrics"), "\netcd_server_is_leader 1\n")
	require.Contains(t, page(t, "http://"+addr+"/metrics"), `grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`)
	down()
	_ = w

	addr, down = up(t, settings(t, dir))
	r, err := client(t, addr).Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "1", string(r.Kvs[0].Value))
	down()
}

func TestWhatStopsAStart(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	free := "127.0.0.1:" + unused(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen-peer-urls=http://" + busy.Addr().String()}, fmt.Sprintf("--listen-peer-urls http://%s: another process listens there already", busy.Addr())},
		{[]string{"--listen-client-urls=http://" + free, "--listen-metrics-urls=http://" + free}, "--listen-metrics-urls http://" + free + ": --listen-client-urls has the same address"},
		{[]string{"--data-dir=" + file}, file},
		{[]string{"--initial-cluster=other=http://localhost:1"}, `couldn't find local name "default"`},
		{[]string{"--listen-client-urls=https://127.0.0.1:0"}, "TLS key/cert"},
		{[]string{"--listen-client-urls=https://127.0.0.1:0", "--cert-file=/no/such", "--key-file=/no/such"}, "/no/such"},
		{[]string{"--listen-metrics-urls=https://127.0.0.1:0"}, "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url"},
		{[]string{"--auth-token=jwt,sign-method=HS256,priv-key=/no/such"}, "/no/such"},
		{[]string{"--audit-log=/no/such/file"}, "--audit-log"},
		{[]string{"--enable-distributed-tracing", "--distributed-tracing-address=%%"}, "exporting spans to %%"},
	} {
		dir := t.TempDir()
		_, err := start(t.Context(), settings(t, dir, tc.args...), zap.NewNop())
		require.ErrorContains(t, err, tc.want, "%v", tc.args)
		require.NoFileExists(t, filepath.Join(dir, "member", "bootstrap.json"), "no cluster has begun: %v", tc.args)
	}
}

// Earlier releases began with a name that is not UTF-8. The error says how the member goes on with its data, and so it does.
func TestAnotherNameInThePlaceOfOneThatIsNotUTF8(t *testing.T) {
	const bad = "caf\xe9"
	dir := t.TempDir()
	cfg := settings(t, dir)
	cfg.Name, cfg.InitialCluster = bad, types.URLsMap{bad: cfg.AdvertisePeerURLs}
	addr, down := up(t, cfg)
	_, err := client(t, addr).Put(t.Context(), "a", "1")
	require.NoError(t, err)
	down()

	_, err = config.Parse([]string{"--name=" + bad}, nil)
	require.EqualError(t, err, `--name "caf\xe9" is not UTF-8: give another; with --data-dir "caf\xe9.stoa" a member that has data keeps it, and is known by the new name`)

	addr, _ = up(t, settings(t, dir, "--name=café"))
	c := client(t, addr)
	r, err := c.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "1", string(r.Kvs[0].Value))
	require.Eventually(t, func() bool {
		list, err := c.MemberList(t.Context())
		return err == nil && list.Members[0].Name == "café"
	}, 10*time.Second, 10*time.Millisecond)
}

// unused is a port at which nothing listens.
func unused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// The data takes precedence.
func TestAnotherNumberOfPartitionsIsIgnored(t *testing.T) {
	dir := t.TempDir()
	addr, down := up(t, settings(t, dir))
	_, err := client(t, addr).Put(t.Context(), "a", "1")
	require.NoError(t, err)
	down()
	addr, _ = up(t, settings(t, dir, "--partitions=3"))
	require.Contains(t, page(t, "http://"+addr+"/metrics"), "\nstoa_partitions 2\n")
	r, err := client(t, addr).Get(t.Context(), "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Count)
}

// A directory of an earlier version has the data and no record.
func TestDataWithoutARecord(t *testing.T) {
	dir := t.TempDir()
	_, down := up(t, settings(t, dir))
	down()
	require.NoError(t, os.Remove(filepath.Join(dir, "member", "bootstrap.json")))
	_, down = up(t, settings(t, dir, "--initial-cluster=", "--name=other"))
	down()
	_, err := os.Stat(filepath.Join(dir, "member", "bootstrap.json"))
	require.NoError(t, err)
}

// The one that waits for others ends like any other.
func TestStopBeforeTheMemberIsBootstrapped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := start(ctx, settings(t, t.TempDir(), "--initial-cluster=default=http://localhost:2380,other=http://127.0.0.1:1"), zap.NewNop())
	require.ErrorIs(t, err, context.Canceled)
}

func TestSeparatePortsForHTTPAndMetrics(t *testing.T) {
	cfg := settings(t, t.TempDir(), "--listen-client-http-urls=http://127.0.0.1:0", "--listen-metrics-urls=http://127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	s, err := start(ctx, cfg, zap.NewNop())
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx) }()
	<-s.node.Ready()
	_, err = client(t, s.ports.client[0].Addr().String()).Put(t.Context(), "a", "1")
	require.NoError(t, err)
	require.Contains(t, page(t, "http://"+s.ports.http[0].Addr().String()+"/version"), `"stoa":`)
	require.Contains(t, page(t, "http://"+s.ports.metrics[0].Addr().String()+"/metrics"), "stoa_version")
	require.Equal(t, "ok\n", page(t, "http://"+s.ports.metrics[0].Addr().String()+"/readyz"))
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, s.stop())
}

func TestAutoTLS(t *testing.T) {
	cfg := settings(t, t.TempDir(), "--listen-client-urls=https://127.0.0.1:0", "--auto-tls", "--peer-auto-tls",
		"--listen-peer-urls=https://127.0.0.1:0", "--initial-advertise-peer-urls=https://localhost:2380", "--initial-cluster=default=https://localhost:2380")
	addr, down := up(t, cfg)
	_, err := os.Stat(filepath.Join(cfg.DataDir, "fixtures", "client", "cert.pem"))
	require.NoError(t, err)
	_, err = http.Get("https://" + addr + "/health")
	require.ErrorContains(t, err, "certificate")
	down()
}

func TestLogger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	lg, err := newLogger(config.Log{Level: "warn", Format: "json", Outputs: []string{path}})
	require.NoError(t, err)
	lg.Info("quiet")
	lg.Warn("loud", zap.String("k", "v"))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(b), "\n"))
	require.Regexp(t, `^\{"level":"warn","ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d{4})","caller":"stoa/stoa_test.go:\d+","msg":"loud","k":"v"\}\n$`, string(b))

	_, err = newLogger(config.Log{Level: "warn", Format: "json", Outputs: []string{"/no/such/dir/log"}})
	require.ErrorContains(t, err, "--log-outputs")
	_, err = newLogger(config.Log{Level: "loud", Format: "json"})
	require.ErrorContains(t, err, "--log-level")
}

func TestLogRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stoa.log")
	cfg := settings(t, dir, "--enable-log-rotation", "--log-outputs="+path, `--log-rotation-config-json={"maxsize": 1, "maxbackups": 2}`)
	lg, err := newLogger(cfg.Log)
	require.NoError(t, err)
	line := strings.Repeat("x", 64<<10)
	for i := range 90 { // below what the sampler lets through
		lg.Info(line, zap.Int("i", i))
	}
	files, err := filepath.Glob(filepath.Join(dir, "stoa*.log"))
	require.NoError(t, err)
	require.Greater(t, len(files), 2, "5.6 MiB in files of 1 MiB")
	for _, f := range files {
		st, err := os.Stat(f)
		require.NoError(t, err)
		require.LessOrEqual(t, st.Size(), int64(1<<20))
	}
	// One file beside other outputs is rotated, and they have the lines too.
	cfg = settings(t, dir, "--enable-log-rotation", "--log-outputs=stderr,"+path)
	require.Equal(t, config.Rotation{File: path, MaxSize: 100}, *cfg.Log.Rotation)
	_, err = newLogger(config.Log{Level: "info", Format: "json", Rotation: &config.Rotation{File: "/dev/null/x/log"}})
	require.ErrorContains(t, err, "--log-outputs")
}

// Every setting that isn't reported as without effect is read by this program.
func TestEverySettingIsRead(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files = append(files, "../../internal/bootstrap/self.go") // on behalf of this program
	var code strings.Builder
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			code.Write(b)
		}
	}
	of := reflect.TypeFor[config.Config]()
	for i := range of.NumField() {
		if f := of.Field(i); f.IsExported() && f.Name != "File" { // File is for messages
			require.True(t, strings.Contains(code.String(), "."+f.Name), "%s is not read", f.Name)
		}
	}
}

func TestNotifySystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	notifySystemd(zap.NewNop(), "READY=1")
	b := make([]byte, 20)
	n, err := conn.Read(b)
	require.NoError(t, err)
	require.Equal(t, "READY=1", string(b[:n]))
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer conn.Close()
	c := logutil.DefaultZapLoggerConfig
	j, err := newJournal(path, c)
	require.NoError(t, err)
	lg := zap.New(j).With(zap.Int("n", 1))
	lg.Debug("unheard")
	lg.Warn("two\nlines")
	b := make([]byte, 1000)
	n, err := conn.Read(b)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(b[:n]), "MESSAGE\n")
	require.True(t, ok)
	require.Equal(t, "PRIORITY=4\nSYSLOG_IDENTIFIER=stoa\n", head)
	require.EqualValues(t, len(rest)-9, binary.LittleEndian.Uint64([]byte(rest[:8])))
	require.Contains(t, rest, `"msg":"two\nlines","n":1}`)

	_, err = newLogger(config.Log{Level: "info", Format: "json", Outputs: []string{"systemd/journal"}})
	if _, there := os.Stat(journalSocket); there != nil {
		require.ErrorContains(t, err, "systemd/journal")
	}
}

// A retention that has no tenth keeps as good as nothing.
func TestShortestRetention(t *testing.T) {
	addr, _ := up(t, settings(t, t.TempDir(), "--auto-compaction-retention=1ns"))
	c := client(t, addr)
	first, err := c.Put(t.Context(), "k", "1")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.Put(t.Context(), "k", "2")
		require.NoError(t, err)
		_, err = c.Get(t.Context(), "k", clientv3.WithRev(first.Header.Revision))
		return errors.Is(err, rpctypes.ErrCompacted)
	}, 30*time.Second, 5*time.Millisecond)
}
