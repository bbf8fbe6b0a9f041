package compose

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/compose"
)

const dropTimeout = 2 * time.Second

// Requests to a cluster whose packets are dropped fail within Config.Timeout:
// for all kinds of requests, whether or not the client was connected before,
// and with any number of members to try.
func TestTimeoutIsKept(t *testing.T) {
	for server, kind := range map[string]compose.Kind{"stoa": compose.Stoa, "etcd": compose.Etcd} {
		t.Run(server, func(t *testing.T) {
			all := start(t, server, 2, false)
			var group sync.WaitGroup
			defer group.Wait()
			for _, members := range []int{1, 3} {
				for _, k := range []compose.Kind{compose.Auto, kind} {
					for name, calls := range dropped {
						of := compose.Cluster{Endpoints: urls(all[1].voters[:members]), Kind: k}
						group.Go(func() {
							if err := calls.dropPackets(soon(t), urls(all[0].voters), of); err != nil {
								t.Errorf("%s, %d members, kind %d: %v", name, members, k, err)
							}
						})
					}
				}
			}
		})
	}
}

// dropPackets makes the calls to a cluster while its packets are dropped.
func (s *dropping) dropPackets(ctx context.Context, here []string, there compose.Cluster) error {
	h := &hole{}
	there.DialOptions = []grpc.DialOption{grpc.WithContextDialer(h.dial)}
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{"c0": {Endpoints: here}, "c1": there},
		Routes:   []compose.Route{{Prefix: prefix(0), Cluster: "c0"}, {Prefix: prefix(1), Cluster: "c1"}},
		Timeout:  dropTimeout,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	before := []call{getHere}
	if s.connected {
		before = append(before, putThere, s.before)
	}
	for _, one := range before {
		if err := untilAnswered(ctx, c, one); err != nil {
			return fmt.Errorf("before: %w", err)
		}
	}
	h.open()
	for i, one := range s.calls {
		began := time.Now()
		err := one(ctx, c)
		took := time.Since(began)
		var named *compose.ClusterError
		switch {
		case !errors.As(err, &named) || named.Cluster != "c1":
			return fmt.Errorf("call %d: %v", i, err)
		case took > dropTimeout*5/4:
			return fmt.Errorf("call %d has taken %v (%w)", i, took, err)
		case i == 0 && s.connected && took < dropTimeout*3/4:
			return fmt.Errorf("call %d was given up after %v (%w)", i, took, err)
		}
	}
	return nil
}

// untilAnswered repeats a call: so many clients at once can keep a slow machine busy for longer than the timeout.
func untilAnswered(ctx context.Context, c *compose.Client, one call) error {
	for {
		err := one(ctx, c)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

type call func(context.Context, *compose.Client) error

func putThere(ctx context.Context, c *compose.Client) error {
	_, err := c.Put(ctx, prefix(1)+"a", "x")
	return err
}

func getThere(ctx context.Context, c *compose.Client) error {
	_, err := c.Get(ctx, prefix(1)+"a")
	return err
}

func getHere(ctx context.Context, c *compose.Client) error {
	_, err := c.Get(ctx, prefix(0)+"a")
	return err
}

func nothing(context.Context, *compose.Client) error { return nil }

// dropping is calls that are made one after the other, and one before. The
// cluster answers until then, if the client is to be connected to it.
type dropping struct {
	connected bool
	before    call
	calls     []call
}

var dropped = map[string]*dropping{
	"put":         {true, nothing, []call{putThere, putThere, getThere}},
	"local read":  {true, getThere, []call{getThere, getThere}},
	"read behind": {true, getHere, []call{getThere, putThere}},
	"first put":   {false, nothing, []call{putThere, getThere}},
	"first read":  {false, nothing, []call{getThere, putThere}},
	"transaction": {true, nothing, []call{func(ctx context.Context, c *compose.Client) error {
		_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Version(prefix(1)+"a"), "=", 0)).Commit()
		return err
	}}},
	"sync": {true, nothing, []call{func(ctx context.Context, c *compose.Client) error { return c.Sync(ctx, "c1") }}},
	"grant": {false, nothing, []call{func(ctx context.Context, c *compose.Client) error {
		_, err := c.Grant(ctx, 60)
		return err
	}}},
	"session": {true, nothing, []call{func(ctx context.Context, c *compose.Client) error {
		_, err := c.Session(ctx)
		return err
	}}},
	"revoke": {true, nothing, []call{func(ctx context.Context, c *compose.Client) error {
		f := c.PutAsync(prefix(1)+"a", "x")
		_, err := c.Revoke(ctx, 4711)
		<-f.Done()
		return err
	}}},
	"feed":       {true, nothing, []call{feedThere}},
	"first feed": {false, nothing, []call{feedThere}},
}

func feedThere(ctx context.Context, c *compose.Client) error {
	_, err := c.NewFeed().Watch(ctx, prefix(1)+"a")
	return err
}

// hole is a network that drops all packets once it is open. Established
// connections stay, and new ones are not made.
type hole struct {
	mu     sync.Mutex
	opened bool
}

func (h *hole) open() {
	h.mu.Lock()
	h.opened = true
	h.mu.Unlock()
}

func (h *hole) drops() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened
}

func (h *hole) dial(ctx context.Context, addr string) (net.Conn, error) {
	if h.drops() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &leak{Conn: conn, h: h}, nil
}

// leak is a connection through the hole.
type leak struct {
	net.Conn
	h *hole
}

func (l *leak) Write(b []byte) (int, error) {
	if l.h.drops() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

func (l *leak) Read(b []byte) (int, error) {
	for {
		n, err := l.Conn.Read(b)
		if err != nil || !l.h.drops() {
			return n, err
		}
	}
}
