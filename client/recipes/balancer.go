package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Balancer gives each caller the next of a set of servers.
type Balancer struct {
	kv         handle
	root, name string
}

// ErrNoServer: the balancer has no servers.
var ErrNoServer = errors.New("there are no servers")

// Server is one of a balancer's.
type Server struct{ Name, Address string }

// NewBalancer returns the balancer of a name.
func NewBalancer(kv KV, root, name string) *Balancer {
	return &Balancer{kv: handle{kv: kv}, root: rootOf("balancer", root), name: name}
}

func (b *Balancer) servers() string { return b.root + "servers/" + b.name + "/" }

// Join adds a server, for as long as the lease lasts.
func (b *Balancer) Join(ctx context.Context, s Server, lease clientv3.LeaseID) error {
	if _, err := b.kv.Put(ctx, b.servers()+s.Name, s.Address, clientv3.WithLease(lease)); err != nil {
		return fmt.Errorf("recipes: joining %s%s: %w", b.root, b.name, err)
	}
	return nil
}

// Leave removes a server.
func (b *Balancer) Leave(ctx context.Context, name string) error {
	if _, err := b.kv.Delete(ctx, b.servers()+name); err != nil {
		return fmt.Errorf("recipes: leaving %s%s: %w", b.root, b.name, err)
	}
	return nil
}

// Next returns the server behind the one that was returned last, or ErrNoServer.
func (b *Balancer) Next(ctx context.Context) (Server, error) {
	answer, err := call(ctx, b.kv, b.root+"next/"+b.name, "")
	if err == nil && answer == nil {
		err = ErrNoServer
	}
	if err != nil {
		return Server{}, fmt.Errorf("recipes: asking %s%s for a server: %w", b.root, b.name, err)
	}
	return Server{Name: strings.TrimPrefix(string(answer.Key), b.servers()), Address: string(answer.Value)}, nil
}
