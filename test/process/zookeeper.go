package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// ErrNoJava is returned on a machine that cannot run a ZooKeeper.
var ErrNoJava = errors.New("skipped: no java in PATH, which ZooKeeper needs")

// zooKeeperScheme begins ZooKeeper's client URLs. Its clients want the rest.
const zooKeeperScheme = "zookeeper://"

// What ZooKeeper logs once it serves, alone and in an ensemble.
const (
	zooKeeperAlone    = "PrepRequestProcessor (sid:0) started"
	zooKeeperEnsemble = " - broadcast"
)

var fetchZooKeeper = sync.OnceValues(func() (string, error) {
	return build("bin/peers/zookeeper", "run", "./test/peers", "zookeeper")
})

// zooKeeper fetches, if need be, the jars that test/peers pins.
func zooKeeper() (Binary, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return Binary{}, ErrNoJava
	}
	dir, err := fetchZooKeeper()
	if err != nil {
		return Binary{}, err
	}
	return Binary{Path: java, ClassPath: filepath.Join(dir, "*")}, nil
}

// newZooKeeper plans a ZooKeeper ensemble, and writes its configuration files because
// ZooKeeper takes no flags. What isn't named there is ZooKeeper's default: every
// transaction is synced to the disk, a snapshot comes every 100,000. Spec.Args go to
// the JVM.
func newZooKeeper(spec Spec) (*Cluster, error) {
	ports, err := freePorts(3 * spec.Nodes)
	if err != nil {
		return nil, err
	}
	var ensemble strings.Builder
	ready := zooKeeperAlone
	if spec.Nodes > 1 {
		ready = zooKeeperEnsemble
		for i := range spec.Nodes {
			fmt.Fprintf(&ensemble, "server.%d=127.0.0.1:%d:%d\n", i+1, ports[3*i+1], ports[3*i+2])
		}
	}
	c := &Cluster{Spec: spec}
	for i := range spec.Nodes {
		name := fmt.Sprintf("s%d", i+1)
		s := &Server{
			Name:      name,
			ClientURL: fmt.Sprintf("%s127.0.0.1:%d", zooKeeperScheme, ports[3*i]),
			PeerURL:   fmt.Sprintf("%s127.0.0.1:%d", zooKeeperScheme, ports[3*i+1]),
			DataDir:   filepath.Join(spec.Dir, name),
			LogFile:   filepath.Join(spec.Dir, name+".log"),
			bin:       spec.Binary,
			readyLine: ready,
			env:       spec.Env,
		}
		config := filepath.Join(spec.Dir, name+".cfg")
		if err := writeZooKeeperConfig(s, config, i+1, ports[3*i], ensemble.String()); err != nil {
			return nil, err
		}
		s.args = append([]string{"-Xmx512m", "-cp", spec.Binary.ClassPath}, spec.Args...)
		s.args = append(s.args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
		c.Servers = append(c.Servers, s)
	}
	return c, nil
}

func writeZooKeeperConfig(s *Server, file string, id, port int, ensemble string) error {
	if err := os.MkdirAll(s.DataDir, 0o755); err != nil {
		return fmt.Errorf("configuring ZooKeeper's %s: %w", s.Name, err)
	}
	text := fmt.Sprintf(`tickTime=%d
initLimit=10
syncLimit=5
dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=
%s`, 2*time.Second/time.Millisecond, s.DataDir, port, ensemble)
	err := errors.Join(
		os.WriteFile(filepath.Join(s.DataDir, "myid"), fmt.Appendln(nil, id), 0o644),
		os.WriteFile(file, []byte(text), 0o644))
	if err != nil {
		return fmt.Errorf("configuring ZooKeeper's %s: %w", s.Name, err)
	}
	return nil
}
