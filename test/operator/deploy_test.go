package operator

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/test/process"
)

func deployed(t *testing.T, path ...string) string {
	t.Helper()
	root, err := process.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(append([]string{root, "deploy"}, path...)...))
	require.NoError(t, err)
	return string(text)
}

// The unit is valid, and its command line, with the settings that docs/deploy.md makes, tells
// systemd when the server is ready and when it stops.
func TestSystemdUnit(t *testing.T) {
	b := openBookOf(t, "deploy.md")
	bin, err := process.UnderTest()
	require.NoError(t, err)
	unit := strings.ReplaceAll(deployed(t, "systemd", "stoa.service"), "/usr/local/bin/stoa", bin.Path)
	require.Contains(t, unit, "\nType=notify\n")
	if verify, err := exec.LookPath("systemd-analyze"); err == nil {
		file := filepath.Join(t.TempDir(), "stoa.service")
		require.NoError(t, os.WriteFile(file, []byte(unit), 0o600))
		out, err := exec.Command(verify, "verify", "--man=no", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out))
	}

	blocks := b.blocks("systemd")
	require.Len(t, blocks, 1)
	settings, err := filepath.Abs("../../deploy")
	require.NoError(t, err)
	b.run(strings.ReplaceAll(blocks[0], "deploy/systemd", settings+"/systemd"))
	_, start, _ := strings.Cut(unit, "\nExecStart=")
	start, _, _ = strings.Cut(start, "\n")
	var sockets []*net.UnixConn
	for m := 1; m <= 3; m++ {
		path := fmt.Sprintf("%s/m%d/notify", b.dir, m)
		s, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		require.NoError(t, err)
		defer s.Close()
		sockets = append(sockets, s)
		// The machines are one here, which has 127.0.0.1 once.
		file := fmt.Sprintf("%s/m%d/etc/stoa.yaml", b.dir, m)
		local := strings.NewReplacer("10.0.1.", b.net, ",http://127.0.0.1:2379", "", "/var/lib/", fmt.Sprintf("%s/m%d/", b.dir, m)).Replace(b.read(m, "etc/stoa.yaml"))
		require.NoError(t, os.WriteFile(file, []byte(local), 0o600))
		b.serve(m, "export NOTIFY_SOCKET="+path+"\nexec "+start)
	}
	for m, s := range sockets {
		requireNotified(t, s, "READY=1")
		require.Contains(t, b.read(m+1, "etc/stoa.yaml"), fmt.Sprintf("name: s%d\n", m+1))
	}
	b.keys(3)
	for m, s := range sockets {
		require.NoError(t, b.running[m+1].Process.Signal(syscall.SIGTERM))
		requireNotified(t, s, "STOPPING=1")
		require.NoError(t, b.running[m+1].Wait())
		delete(b.running, m+1)
	}
}

func (b *book) read(machine int, file string) string {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("%s/m%d/%s", b.dir, machine, file))
	require.NoError(b.t, err)
	return string(text)
}

func requireNotified(t *testing.T, s *net.UnixConn, state string) {
	t.Helper()
	require.NoError(t, s.SetReadDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, 100)
	n, err := s.Read(buf)
	require.NoError(t, err)
	require.Equal(t, state, string(buf[:n]))
}

// The image is made without docker: its two programs in an empty root directory, run as its
// user. The members of the compose file become a cluster in it, and healthy.
func TestImage(t *testing.T) {
	requireStoa(t)
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	image := deployed(t, "docker", "Dockerfile")
	require.Contains(t, image, "\nFROM scratch\n")
	require.Contains(t, image, "\nUSER 65532:65532\n")
	require.Contains(t, image, "\nENV STOA_DATA_DIR=/var/lib/stoa\n")
	var compose struct {
		Services map[string]struct {
			Environment map[string]string
			Ports       []string
			Volumes     []string
			Healthcheck struct{ Test []string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployed(t, "docker", "compose.yaml")), &compose))
	require.Len(t, compose.Services, 3)
	// The members' client URLs have names that mean nothing outside of the containers.
	var published []string
	for _, name := range []string{"s1", "s2", "s3"} {
		require.Len(t, compose.Services[name].Ports, 1)
		published = append(published, strings.TrimSuffix(compose.Services[name].Ports[0], ":2379"))
	}

	b := openBookOf(t, "deploy.md")
	require.True(t, strings.Contains(b.text, "\n$ stoactl --endpoints "+strings.Join(published, ",")+" endpoint health\n"), "asks others than %v", published)
	programs, roots := staticPrograms(t), map[int]string{}
	for m := 1; m <= 3; m++ {
		name := fmt.Sprint("s", m)
		s := compose.Services[name]
		require.Equal(t, []string{name + ":/var/lib/stoa"}, s.Volumes)
		roots[m] = b.container(programs, m)
		address := strings.NewReplacer("0.0.0.0", fmt.Sprint(b.net, m), "//s1", "//"+b.net+"1", "//s2", "//"+b.net+"2", "//s3", "//"+b.net+"3")
		env := []string{"STOA_DATA_DIR=/var/lib/stoa"}
		for k, v := range s.Environment {
			env = append(env, k+"="+address.Replace(v))
		}
		cmd := contained(roots[m], env, "/usr/local/bin/stoa")
		log, err := os.Create(fmt.Sprintf("%s/m%d/log", b.dir, m))
		require.NoError(t, err)
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		require.NoError(t, cmd.Start())
		b.running[m] = cmd
	}
	b.await()
	b.keys(3)
	for m := 1; m <= 3; m++ {
		check := compose.Services[fmt.Sprint("s", m)].Healthcheck.Test
		require.Equal(t, "CMD", check[0])
		out, err := contained(roots[m], []string{fmt.Sprintf("STOACTL_ENDPOINTS=%s%d:2379", b.net, m)}, check[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// container is a root directory that has what the image has.
func (b *book) container(programs string, machine int) (root string) {
	b.t.Helper()
	root = fmt.Sprintf("%s/m%d/root", b.dir, machine)
	for _, dir := range []string{"usr/local/bin", "var/lib/stoa"} {
		require.NoError(b.t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for _, name := range []string{"stoa", "stoactl"} {
		require.NoError(b.t, os.Link(filepath.Join(programs, name), filepath.Join(root, "usr/local/bin", name)))
	}
	require.NoError(b.t, os.Chown(filepath.Join(root, "var/lib/stoa"), 65532, 65532))
	return root
}

// staticPrograms builds them as make and the image do.
func staticPrograms(t *testing.T) (dir string) {
	t.Helper()
	root, err := process.Root()
	require.NoError(t, err)
	dir = t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/stoa", "./cmd/stoactl")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// contained is a command that sees nothing but root, as the image's user.
func contained(root string, env []string, command ...string) *exec.Cmd {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = "/", env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// The manifests name the image of this release.
func TestManifestsImage(t *testing.T) {
	require.Contains(t, deployed(t, "kubernetes", "static-pod.yaml"), "image: stoa:"+version.Stoa+"\n")
	require.Contains(t, deployed(t, "kubernetes", "kustomization.yaml"), "newTag: "+version.Stoa+" ")
	// Those that kustomization.yaml doesn't have are applied with an image, too.
	applied := regexp.MustCompile(`\bsed (?:[^\n]*\\\n)?[^\n]*kubectl apply`).FindAllString(openBookOf(t, "deploy.md").text, -1)
	require.Len(t, applied, 2)
	for _, command := range applied {
		require.Contains(t, command, "s|image: stoa$|image: registry.example.com/stoa:"+version.Stoa+"|")
	}
}

// What the manifests start has the flags that they give it.
func TestManifestsFlags(t *testing.T) {
	requireStoa(t)
	stoactl, err := process.Stoactl()
	require.NoError(t, err)
	started := map[string]int{}
	for _, file := range []string{"stoa.yaml", "backup.yaml", "restore.yaml", "static-pod.yaml"} {
		for _, doc := range strings.Split(deployed(t, "kubernetes", file), "\n---\n") {
			var tree any
			require.NoError(t, yaml.Unmarshal([]byte(doc), &tree))
			for _, command := range commands(tree) {
				started[filepath.Base(command[0])]++
				if filepath.Base(command[0]) == "stoa" {
					_, err := config.Parse(command[1:], nil)
					require.NoError(t, err, "%s: %v", file, command)
					continue
				}
				out, err := exec.Command(stoactl, append(command[1:], "--help")...).CombinedOutput()
				require.NoError(t, err, "%s: %v\n%s", file, command, out)
			}
		}
	}
	require.Equal(t, map[string]int{"stoa": 2, "stoactl": 2}, started)
}

// commands are the command lines of the containers that have stoa's image.
func commands(tree any) (list [][]string) {
	switch v := tree.(type) {
	case []any:
		for _, inner := range v {
			list = append(list, commands(inner)...)
		}
	case map[string]any:
		if image, _ := v["image"].(string); image == "stoa" || strings.HasPrefix(image, "stoa:") {
			words := append(stringsOf(v["command"]), stringsOf(v["args"])...)
			if v["command"] == nil {
				words = append([]string{"stoa"}, words...)
			}
			return [][]string{words}
		}
		for _, inner := range v {
			list = append(list, commands(inner)...)
		}
	}
	return list
}

func stringsOf(v any) (out []string) {
	list, _ := v.([]any)
	for _, s := range list {
		out = append(out, s.(string))
	}
	return out
}
