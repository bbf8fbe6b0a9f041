package operator

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// book runs the command blocks of one of the documents, for three machines: their addresses
// are loopback addresses here, their directories are below one of the test's.
type book struct {
	t        *testing.T
	text     string
	dir, net string
	running  map[int]*exec.Cmd // servers by machine
	oneShell bool              // what a block exports holds for those behind it
	exported []string
	tls      func() *tls.Config // nil: clients have none
}

func openBook(t *testing.T) *book {
	t.Helper()
	return openBookOf(t, "operations.md")
}

func openBookOf(t *testing.T, document string) *book {
	t.Helper()
	requireStoa(t)
	root, err := process.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", document))
	require.NoError(t, err)
	b := &book{t: t, text: string(text), dir: t.TempDir(), running: map[int]*exec.Cmd{},
		net: fmt.Sprintf("127.%d.%d.", 10+rand.IntN(200), 10+rand.IntN(200))}
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "backup"), 0o700))
	tools := filepath.Join(b.dir, "bin")
	require.NoError(t, os.Mkdir(tools, 0o700))
	for name, find := range map[string]func() (string, error){
		"stoa":    func() (string, error) { bin, err := process.UnderTest(); return bin.Path, err },
		"stoactl": process.Stoactl,
		"etcd":    func() (string, error) { return process.Peer("etcd") },
		"etcdctl": func() (string, error) { return process.Peer("etcdctl") },
		"etcdutl": func() (string, error) { return process.Peer("etcdutl") },
	} {
		path, err := find()
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(tools, name)))
	}
	t.Cleanup(b.stopServers)
	return b
}

var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// blocks are those of a section.
func (b *book) blocks(section string) (list []string) {
	b.t.Helper()
	_, after, ok := strings.Cut(b.text, "\n## "+section+"\n")
	require.True(b.t, ok, "there is no section %q", section)
	after, _, _ = strings.Cut(after, "\n## ")
	for _, found := range block.FindAllStringSubmatch(after, -1) {
		list = append(list, found[1])
	}
	return list
}

// A block that says N=1 is for each of the three machines, one that says another number for that
// machine, and one without N for the first.
var forMachine = regexp.MustCompile(`(?m)^N=(\d+)\b.*$`)

func machinesOf(text string) []int {
	switch found := forMachine.FindStringSubmatch(text); {
	case found == nil:
		return []int{1}
	case found[1] == "1":
		return []int{1, 2, 3}
	default:
		n, _ := strconv.Atoi(found[1])
		return []int{n}
	}
}

// command is a block as it runs on a machine.
func (b *book) command(text string, machine int) *exec.Cmd {
	text = forMachine.ReplaceAllString(text, fmt.Sprint("N=", machine))
	text = strings.NewReplacer("10.0.1.", b.net, "/var/lib/", fmt.Sprintf("%s/m%d/", b.dir, machine), "/backup/", b.dir+"/backup/",
		"/etc/stoa", fmt.Sprintf("%s/m%d/etc", b.dir, machine), "/root/ca", b.dir+"/ca").Replace(text)
	cmd := exec.Command("bash", "-euc", strings.Join(b.exported, "\n")+"\n"+text)
	if b.oneShell {
		b.exported = append(b.exported, export.FindAllString(text, -1)...)
	}
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(b.dir, "bin")+":"+os.Getenv("PATH"))
	return cmd
}

var export = regexp.MustCompile(`(?m)^export .*$`)

var server = regexp.MustCompile(`(?m)^(stoa|etcd) `)

// run runs a block, servers in the background.
func (b *book) run(text string) (out string) {
	b.t.Helper()
	for _, m := range machinesOf(text) {
		require.NoError(b.t, os.MkdirAll(fmt.Sprintf("%s/m%d", b.dir, m), 0o700))
		if server.MatchString(text) {
			b.serve(m, server.ReplaceAllString(text, "exec $1 "))
			continue
		}
		said, err := b.command(text, m).CombinedOutput()
		require.NoError(b.t, err, "%s\n%s", text, said)
		out += string(said)
	}
	if server.MatchString(text) {
		b.await()
	}
	return out
}

// bootstrap starts what there is before: a cluster of three that begins empty.
func (b *book) bootstrap() {
	b.t.Helper()
	start := b.blocks("Restore")[2]
	require.Contains(b.t, start, "stoa --name")
	b.run(strings.TrimRight(start, "\n") + ` \
  --initial-advertise-peer-urls http://10.0.1.$N:2380 --partitions 2 \
  --initial-cluster s1=http://10.0.1.1:2380,s2=http://10.0.1.2:2380,s3=http://10.0.1.3:2380
`)
}

func (b *book) serve(machine int, text string) {
	b.t.Helper()
	log, err := os.OpenFile(fmt.Sprintf("%s/m%d/log", b.dir, machine), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(b.t, err)
	defer log.Close()
	cmd := b.command(text, machine)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(b.t, cmd.Start())
	if strings.Contains(text, "10.0.1.1$N:") {
		machine += 10
	}
	b.running[machine] = cmd
}

func (b *book) client(machine int) *clientv3.Client {
	b.t.Helper()
	cfg := clientv3.Config{Endpoints: []string{fmt.Sprintf("http://%s%d:2379", b.net, machine)}, Logger: zap.NewNop()}
	if b.tls != nil {
		cfg.TLS = b.tls()
		cfg.Endpoints[0] = strings.Replace(cfg.Endpoints[0], "http:", "https:", 1)
	}
	cli, err := clientv3.New(cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { cli.Close() })
	return cli
}

// served is what servers answer that serve, but not this request.
var served = regexp.MustCompile("not supported for learner|user name|permission denied")

// await waits until every server serves.
func (b *book) await() {
	b.t.Helper()
	for m := range b.running {
		cli := b.client(m)
		require.Eventually(b.t, func() bool {
			ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Second)
			defer cancel()
			_, err := cli.Get(ctx, "/none")
			return err == nil || served.MatchString(err.Error())
		}, time.Minute, 100*time.Millisecond, "machine %d, log: %s/m%d/log", m, b.dir, m)
	}
}

func (b *book) stopServers() {
	for m := range b.running {
		b.stop(m, syscall.SIGTERM)
	}
}

func (b *book) stop(machine int, by syscall.Signal) {
	_ = b.running[machine].Process.Signal(by)
	_ = b.running[machine].Wait()
	delete(b.running, machine)
}

// keys writes some, and returns all that there are.
func (b *book) keys(write int) string {
	b.t.Helper()
	return b.keysAt(2, write)
}

func (b *book) keysAt(machine, write int) string {
	b.t.Helper()
	cli := b.client(machine)
	for i := range write {
		_, err := cli.Put(b.t.Context(), fmt.Sprintf("/book/%d/k", i), "v")
		require.NoError(b.t, err)
	}
	r, err := cli.Get(b.t.Context(), "/", clientv3.WithPrefix())
	require.NoError(b.t, err)
	return fmt.Sprint(r.Kvs)
}

// An operator who copies the commands of the runbooks gets what they promise: a backup, its
// restore, the move to etcd and the move back.
func TestRunbooksOfBackups(t *testing.T) {
	b := openBook(t)
	backup, restore, out, in := b.blocks("Backup"), b.blocks("Restore"), b.blocks("Moving to etcd"), b.blocks("Moving from etcd")
	require.Len(t, backup, 1)
	require.Len(t, restore, 4)
	require.Len(t, out, 4)
	require.Len(t, in, 2)
	start := restore[2]
	b.bootstrap()
	saved := b.keys(30)
	require.Contains(t, b.run(backup[0]), "REVISION")
	b.keys(31) // lost
	b.stopServers()
	for _, text := range restore {
		b.run(text)
	}
	require.Equal(t, saved, b.keys(0))
	p, err := b.client(1).Put(t.Context(), "/next", "v")
	require.NoError(t, err)
	require.Greater(t, p.Header.Revision, int64(1_000_000_000))
	saved = b.keys(0)

	b.run(out[0])
	b.stopServers()
	b.run(out[1])
	b.run(out[2])
	require.Equal(t, saved, b.keys(0))
	hashes := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(b.run(out[3])), "\n") {
		hashes[strings.SplitN(line, ", ", 2)[1]] = true
	}
	require.Len(t, hashes, 1)

	b.run(in[0])
	b.stopServers()
	b.run("N=1\nmv /var/lib/stoa /var/lib/stoa.second\n")
	b.run(in[1])
	b.run(start)
	require.Equal(t, saved, b.keys(0))
}

// contents is what a migration keeps of keys.
func (b *book) contents(machine int) string {
	b.t.Helper()
	r, err := b.client(machine).Get(b.t.Context(), "/", clientv3.WithPrefix())
	require.NoError(b.t, err)
	var list strings.Builder
	for _, kv := range r.Kvs {
		fmt.Fprintf(&list, "%s=%s %x\n", kv.Key, kv.Value, kv.Lease)
	}
	return list.String()
}

// follow runs a block that runs until it is interrupted, until it says something. It is left
// running, and must end by itself.
func (b *book) follow(text, until string) (ended func()) {
	b.t.Helper()
	cmd := b.command("exec "+text, 1)
	out, err := cmd.StdoutPipe()
	require.NoError(b.t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(b.t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), until) {
			return func() {
				_, _ = io.Copy(io.Discard, out)
				require.Error(b.t, cmd.Wait())
			}
		}
	}
	require.Fail(b.t, "it has ended", text)
	return nil
}

// A running cluster moves from etcd to stoa and back, and then etcd's directories become
// stoa's.
func TestRunbooksOfMoving(t *testing.T) {
	b := openBook(t)
	live, convert := b.blocks("Moving a running cluster"), b.blocks("Converting a data directory of etcd's")
	require.Len(t, live, 7)
	require.Len(t, convert, 3)
	toStoa, toEtcd := live[:4], live[4:]

	b.run(toEtcd[0]) // etcd's first start is as its second
	l, err := b.client(1).Grant(t.Context(), 600)
	require.NoError(t, err)
	_, err = b.client(1).Put(t.Context(), "/book/leased", "v", clientv3.WithLease(l.ID))
	require.NoError(t, err)
	b.run(toStoa[0])
	ended := b.follow(toStoa[1], "Ready to cut over")
	b.keysAt(1, 30)
	saved := b.contents(1)
	require.Contains(t, b.run(toStoa[2]), "Migrated 31 keys and 1 leases")
	ended()
	require.Equal(t, saved, b.contents(11))
	require.Contains(t, b.run(toStoa[3]), b.net+"11:2379")

	for m := 1; m <= 3; m++ {
		b.stop(m, syscall.SIGTERM)
	}
	b.run("N=1\nrm -r /var/lib/etcd\n")
	b.run(toEtcd[0])
	ended = b.follow(toEtcd[1], "Ready to cut over")
	b.keysAt(11, 35)
	saved = b.contents(11)
	require.Contains(t, b.run(toEtcd[2]), "Migrated 36 keys and 1 leases")
	ended()
	require.Equal(t, saved, b.contents(1))

	whole := b.keys(40)
	require.Contains(t, b.run(convert[0]), "RAFT APPLIED INDEX")
	b.stopServers()
	b.run(convert[1])
	require.Equal(t, whole, b.keys(0))
	b.run(convert[2])
}
