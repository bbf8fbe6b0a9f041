package client

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Client is a client of one cluster: etcd's client, with one gRPC call per request,
// and the sessions that are opened from it. All methods may be called by any number of
// goroutines at once. New and Of make one; the zero Client connects to nothing, and has
// no etcd client inside.
type Client struct {
	*clientv3.Client
	e *engine.Client
}

var errZeroClient = errors.New("client: a zero Client connects to nothing; client.New and client.Of make one")

// New makes a client. It returns before a connection is established, unless
// there is a password to be exchanged. The client must be closed.
func New(cfg Config) (*Client, error) {
	e, err := engine.New(cfg.engine())
	if err != nil {
		return nil, err
	}
	return &Client{Client: e.Client, e: e}, nil
}

// Of makes a Client of an etcd client, which stays usable by itself. Sessions go to
// its endpoints, with its credentials and by its name (Identify); their settings are
// the defaults of Config. Closing one of the two closes both.
func Of(c *clientv3.Client) *Client {
	e := engine.Of(c)
	return &Client{Client: c, e: e}
}

// Close closes all sessions of the client and all its connections. The leases
// of sessions that were not closed before, and with them their ephemeral keys,
// expire after their TTL.
func (c *Client) Close() error {
	if c.e == nil {
		return nil
	}
	return c.e.Close()
}

// Partition is the partition of a key as far as the client knows. It is
// unknown, and ok is false, before the first session of the client was opened.
// Keys may have moved since.
func (c *Client) Partition(key string) (partition int, ok bool) {
	if c.e == nil {
		return 0, false
	}
	return c.e.Partition(key)
}

// Partitions is the state of the partition groups on the server that answers;
// others may have applied more or less. A server of etcd's answers with the
// gRPC code Unimplemented.
func (c *Client) Partitions(ctx context.Context) (*stoapb.ListPartitionsResponse, error) {
	if c.e == nil {
		return nil, errZeroClient
	}
	return c.e.Partitions(ctx)
}

// Identify gives a client of etcd's package the name by which extensions know it, in
// all its calls, in its watches, and in sessions that are opened over it (Of):
//
//	clientv3.New(clientv3.Config{Endpoints: …, DialOptions: client.Identify("worker-7")})
//
// Config.ClientID does the same for a client of this package. A name has up to 256
// characters of printable ASCII; with another one every call fails with the gRPC code
// InvalidArgument. All clients without a name are one client, "anonymous".
func Identify(id string) []grpc.DialOption { return engine.Identify(id) }
