package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Spec says what cluster to start.
type Spec struct {
	Binary     Binary
	Nodes      int      // 1 if 0
	Partitions int      // given to stoa only; 0 leaves the server's default
	Args       []string // more flags, for each server
	TLS        bool     // clients come over TLS; Args name the files for it
	PeerTLS    bool     // so do peers
	Metrics    bool     // each server has a metrics port, at its MetricsURL
	Env        []string
	Dir        string // where data and logs go
	Timeout    time.Duration
	Places     []Place // one for each server; none: all on 127.0.0.1
}

// Place is where a server runs.
type Place struct {
	Host string // the address that it listens on
	// Enter, if not nil, is put around the start of the process: to start it in a
	// network namespace.
	Enter func(start func() error) error
	// DataDir, if not "", is where its data go instead of the cluster's directory.
	DataDir string
}

// Cluster is a set of servers that know each other.
type Cluster struct {
	Servers []*Server
	Spec    Spec
}

// New plans a cluster: ports, directories, command lines. Nothing runs yet.
func New(spec Spec) (*Cluster, error) {
	if spec.Nodes == 0 {
		spec.Nodes = 1
	}
	if spec.Timeout == 0 {
		spec.Timeout = 30 * time.Second
	}
	if spec.Binary.ClassPath != "" {
		return newZooKeeper(spec)
	}
	ports, err := freePorts(2 * spec.Nodes)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Spec: spec}
	var initial []string
	for i := range spec.Nodes {
		name := fmt.Sprintf("s%d", i+1)
		at := Place{Host: "127.0.0.1"}
		if spec.Places != nil {
			at = spec.Places[i]
		}
		s := spec.server(name, at, ports[2*i], ports[2*i+1])
		initial = append(initial, name+"="+s.PeerURL)
		c.Servers = append(c.Servers, s)
	}
	if spec.Metrics {
		if ports, err = freePorts(spec.Nodes); err != nil {
			return nil, err
		}
		for i, s := range c.Servers {
			s.MetricsURL = fmt.Sprintf("http://127.0.0.1:%d", ports[i])
		}
	}
	for _, s := range c.Servers {
		s.args = spec.flags(s, initial, "new")
	}
	return c, nil
}

// Joining plans a server that joins a cluster of etcd's that runs. Before its
// start it has to be added to the cluster (member add, with its PeerURL). It is
// one of c.Servers then.
func (c *Cluster) Joining(name string, at Place) (*Server, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	s := c.Spec.server(name, at, ports[0], ports[1])
	c.Servers = append(c.Servers, s)
	var initial []string
	for _, s := range c.Servers {
		initial = append(initial, s.Name+"="+s.PeerURL)
	}
	s.args = c.Spec.flags(s, initial, "existing")
	return s, nil
}

func (spec *Spec) server(name string, at Place, clientPort, peerPort int) *Server {
	scheme := map[bool]string{false: "http", true: "https"}
	dataDir := at.DataDir
	if dataDir == "" {
		dataDir = filepath.Join(spec.Dir, name)
	}
	return &Server{
		Name:      name,
		ClientURL: fmt.Sprintf("%s://%s:%d", scheme[spec.TLS], at.Host, clientPort),
		PeerURL:   fmt.Sprintf("%s://%s:%d", scheme[spec.PeerTLS], at.Host, peerPort),
		DataDir:   dataDir,
		LogFile:   filepath.Join(spec.Dir, name+".log"),
		bin:       spec.Binary,
		readyLine: ReadyLine,
		env:       spec.Env,
		enter:     at.Enter,
	}
}

func (spec *Spec) flags(s *Server, initial []string, state string) []string {
	flags := []string{
		"--name=" + s.Name,
		"--data-dir=" + s.DataDir,
		"--listen-client-urls=" + s.ClientURL,
		"--advertise-client-urls=" + s.ClientURL,
		"--listen-peer-urls=" + s.PeerURL,
		"--initial-advertise-peer-urls=" + s.PeerURL,
		"--initial-cluster=" + strings.Join(initial, ","),
		"--initial-cluster-token=" + filepath.Base(spec.Dir),
		"--initial-cluster-state=" + state,
	}
	if spec.Binary.Stoa && spec.Partitions > 0 {
		flags = append(flags, fmt.Sprintf("--partitions=%d", spec.Partitions))
	}
	if s.MetricsURL != "" {
		flags = append(flags, "--listen-metrics-urls="+s.MetricsURL)
	}
	return append(flags, spec.Args...)
}

// Start plans a cluster, starts it and waits until all its servers are ready.
func Start(ctx context.Context, spec Spec) (*Cluster, error) {
	c, err := New(spec)
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Start starts those servers that don't run and waits until all are ready.
func (c *Cluster) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Spec.Timeout)
	defer cancel()
	for _, s := range c.Servers {
		if s.Running() {
			continue
		}
		if err := s.Start(); err != nil {
			return err
		}
	}
	for _, s := range c.Servers {
		if err := s.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Restart starts one server again and waits until it serves.
func (c *Cluster) Restart(ctx context.Context, s *Server) error {
	if err := s.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Spec.Timeout)
	defer cancel()
	return s.WaitReady(ctx)
}

// Endpoints are the client URLs of all servers.
func (c *Cluster) Endpoints() []string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.ClientURL)
	}
	return urls
}

// Close kills the running servers. It leaves the directories alone.
func (c *Cluster) Close() error {
	var errs []error
	for _, s := range c.Servers {
		errs = append(errs, s.Kill())
	}
	return errors.Join(errs...)
}

// CPU is the CPU time of all servers together.
func (c *Cluster) CPU() (time.Duration, error) {
	var sum time.Duration
	for _, s := range c.Servers {
		t, err := s.CPU()
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// TempDir makes a directory for a cluster under the system's temporary directory.
func TempDir(name string) (string, error) {
	name = strings.NewReplacer("/", "-", " ", "-", "*", "-").Replace(name)
	dir, err := os.MkdirTemp("", "stoa-"+name+"-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the cluster: %w", err)
	}
	return dir, nil
}
