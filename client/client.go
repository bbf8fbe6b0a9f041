package client

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Client talks to a stoa cluster. All of etcd's client is in it.
type Client struct {
	*clientv3.Client
	partitions stoapb.PartitionsClient
}

// New connects to the endpoints of a configuration of etcd's client. As there,
// it returns before a connection stands unless DialTimeout is set and the
// configuration asks to block.
func New(cfg clientv3.Config) (*Client, error) {
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: connecting to %v: %w", cfg.Endpoints, err)
	}
	return Of(c), nil
}

// Of makes a Client of an etcd client, which stays usable by itself. Closing one
// closes the other.
func Of(c *clientv3.Client) *Client {
	return &Client{Client: c, partitions: stoapb.NewPartitionsClient(c.ActiveConnection())}
}

// Partitions tells how the partition groups stand on the server that happens to
// answer; others may have applied more or less. A server of etcd's answers with
// the gRPC code Unimplemented.
func (c *Client) Partitions(ctx context.Context) (*stoapb.ListPartitionsResponse, error) {
	return c.partitions.List(ctx, &stoapb.ListPartitionsRequest{})
}
