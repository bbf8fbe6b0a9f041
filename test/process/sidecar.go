package process

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// Sidecar plans a `stoa sidecar` of the cluster, on a port of its own, which ClientURL names.
// Its caller starts it; it is killed with the program that started it.
func (c *Cluster) Sidecar(name string, flags ...string) (*Server, error) {
	return c.sidecar(name, append([]string{"--endpoints=" + strings.Join(c.Endpoints(), ",")}, flags...))
}

// SidecarOf is Sidecar for the composition in a file.
func (c *Cluster) SidecarOf(file, name string, flags ...string) (*Server, error) {
	return c.sidecar(name, append([]string{"--compose=" + file}, flags...))
}

// Proxy plans a proxy of etcd's for the cluster, on a port of its own, likewise.
func (c *Cluster) Proxy(name string) (*Server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	bin, err := Choose("etcd")
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))
	s := &Server{
		Name: name, ClientURL: "http://" + address, LogFile: filepath.Join(c.Spec.Dir, name+".log"), bin: bin,
		readyLine: "listening for gRPC proxy client requests",
	}
	s.args = []string{"grpc-proxy", "start", "--endpoints=" + strings.Join(c.Endpoints(), ","), "--listen-addr=" + address,
		"--data-dir=" + filepath.Join(c.Spec.Dir, name)}
	return s, nil
}

func (c *Cluster) sidecar(name string, flags []string) (*Server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	bin := c.Spec.Binary
	if !bin.Stoa {
		if bin, err = Choose("stoa"); err != nil {
			return nil, err
		}
	}
	s := &Server{
		Name: name, ClientURL: "http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0])),
		LogFile: filepath.Join(c.Spec.Dir, name+".log"), bin: bin, readyLine: ReadyLine,
	}
	s.args = append([]string{"sidecar", "--listen-client-urls=" + s.ClientURL}, flags...)
	return s, nil
}
