package clients

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

var langs = flag.String("langs", "python javascript java rust", "the languages whose clients are tested")

// atMost is the limit for one client's scenario. On an idle machine it takes 10 to 20 seconds, most
// of them in pauses between attempts to connect.
const atMost = 5 * time.Minute

// language is how a client's program is built and called.
type language struct {
	name  string
	needs []string // programs
	build func(t *testing.T, root, out string) (command []string)
	// composed: its program knows SCENARIO=composed.
	composed bool
}

var languages = []language{
	{"python", []string{"python3"}, buildPython, true},
	{"javascript", []string{"node", "npm"}, buildJavaScript, true},
	{"java", []string{"java", "mvn"}, buildJava, false},
	{"rust", []string{"cargo", "cc"}, buildRust, false},
}

func TestClients(t *testing.T) {
	asked := strings.Fields(*langs)
	for _, name := range asked {
		require.True(t, slices.ContainsFunc(languages, func(l language) bool { return l.name == name }), "there is no client in %q", name)
	}
	server, err := process.UnderTest()
	require.NoError(t, err)
	for _, l := range languages {
		if !slices.Contains(asked, l.name) {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			for _, program := range l.needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Fatalf("the client in %s needs %s (%v); LANGS=\"...\" names the languages to test", l.name, program, err)
				}
			}
			root, err := process.Root()
			require.NoError(t, err)
			command := l.build(t, root, outputDir(t, root, l.name))
			for _, transport := range transports(server) {
				for _, tls := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s", transport, map[bool]string{false: "plain", true: "tls"}[tls]), func(t *testing.T) {
						scenario(t, server, command, transport, tls)
					})
				}
			}
		})
	}
}

func transports(server process.Binary) []string {
	if !server.Stoa {
		return []string{"etcd"}
	}
	return []string{"grpc-go", "own"}
}

// scenario runs a client's program on a new server.
func scenario(t *testing.T, server process.Binary, command []string, transport string, tls bool) {
	spec := process.Spec{Binary: server, Partitions: 2, TLS: tls}
	if server.Stoa {
		spec.Args = append(spec.Args, "--grpc-transport="+transport)
	}
	var authority []string
	if tls {
		a := process.NewAuthority(t)
		spec.Args = append(spec.Args, "--cert-file="+a.File("server.pem"), "--key-file="+a.File("server.key"))
		authority = []string{a.File("ca.pem")}
	}
	run(t, process.StartT(t, spec).Servers[0], command, authority)
}

// TestComposedSidecar runs programs on a sidecar of two clusters, one of stoa and one of etcd.
func TestComposedSidecar(t *testing.T) {
	asked := strings.Fields(*langs)
	etcd, err := process.Choose("etcd")
	require.NoError(t, err)
	for _, l := range languages {
		if !l.composed || !slices.Contains(asked, l.name) {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			root, err := process.Root()
			require.NoError(t, err)
			command := l.build(t, root, outputDir(t, root, l.name))
			ours, theirs := process.StartT(t, process.Spec{Partitions: 2}), process.StartT(t, process.Spec{Binary: etcd})
			file := filepath.Join(t.TempDir(), "compose.yaml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
clusters:
  ours: { endpoints: [%q] }
  theirs: { endpoints: [%q] }
routes:
- { prefix: /, cluster: ours }
- { prefix: /two/b/, cluster: theirs }
`, ours.Servers[0].ClientURL, theirs.Servers[0].ClientURL), 0o600))
			sidecar, err := ours.SidecarOf(file, "composed")
			require.NoError(t, err)
			require.NoError(t, sidecar.Start())
			t.Cleanup(func() { _ = sidecar.Kill() })
			require.NoError(t, sidecar.WaitReady(t.Context()))
			run(t, sidecar, command, nil, "SCENARIO=composed")
			there, err := clientv3.New(clientv3.Config{Endpoints: theirs.Endpoints()})
			require.NoError(t, err)
			defer there.Close()
			kept, err := there.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			require.NoError(t, err)
			require.NotEmpty(t, kept.Kvs)
			for _, kv := range kept.Kvs {
				require.Contains(t, string(kv.Key), "/two/b/")
			}
		})
	}
}

// run runs a client's program on a server.
func run(t *testing.T, s *process.Server, command, authority []string, env ...string) {
	_, address, _ := strings.Cut(s.ClientURL, "://")
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], slices.Concat(command[1:], []string{address}, authority)...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second
	answers, err := cmd.StdinPipe()
	require.NoError(t, err)
	lines, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	converse(ctx, t, s, lines, answers)
	if err := cmd.Wait(); err != nil || ctx.Err() != nil {
		t.Errorf("the client: %v, %v; it wrote to its standard error:\n%s", err, ctx.Err(), stderr.String())
	}
}

// converse restarts the server when the client's program asks for it, until that ends. All else
// that it prints are problems.
func converse(ctx context.Context, t *testing.T, s *process.Server, lines io.Reader, answers io.Writer) {
	for in := bufio.NewScanner(lines); in.Scan(); {
		switch line := in.Text(); line {
		case "stop", "kill":
			if err := restart(ctx, s, line); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			fmt.Fprintln(answers, "done")
		default:
			t.Error(line)
		}
	}
}

func restart(ctx context.Context, s *process.Server, how string) error {
	end := s.Kill
	if how == "stop" {
		end = func() error {
			_, _, err := s.Stop()
			return err
		}
	}
	if err := end(); err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}
