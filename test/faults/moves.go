package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// moveFaults have keys of the workload move between partitions, some of them while servers fail.
var moveFaults = map[string]func(*nemesis, context.Context) error{
	"move keys":  func(n *nemesis, ctx context.Context) error { return n.place(ctx, n.any(), moveKeys, nil) },
	"pin keys":   func(n *nemesis, ctx context.Context) error { return n.place(ctx, n.any(), pinKeys, nil) },
	"unpin keys": func(n *nemesis, ctx context.Context) error { return n.place(ctx, n.any(), unpinKeys, nil) },
	"balance":    func(n *nemesis, ctx context.Context) error { return n.place(ctx, n.any(), balance, nil) },
	"move keys, kill one": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		return n.place(ctx, n.any(), moveKeys, func() error { return n.kill(ctx, s) })
	},
	"move keys, kill the leader": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		return n.place(ctx, n.any(), moveKeys, func() error { return n.kill(ctx, s) })
	},
	"pin keys, kill all": func(n *nemesis, ctx context.Context) error {
		return n.place(ctx, n.any(), pinKeys, func() error { return n.kill(ctx, n.cluster.Servers...) })
	},
	"move keys, pause the leader": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		return n.place(ctx, n.others(s)[0], moveKeys, func() error { return n.pause(s) })
	},
	"pin keys, cut the leader off from its peers": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		return n.place(ctx, n.any(), pinKeys, func() error { return n.cut(both(n.at(s), n.peers(s)...)) })
	},
	// Those that are down or apart hear later of it that keys have moved.
	"kill one, move keys": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		if err := s.Kill(); err != nil {
			return err
		}
		err := n.place(ctx, n.others(s)[0], moveKeys, nil)
		if dead := n.revive(ctx, s); dead != nil {
			return dead
		}
		return err
	},
	"cut one off, move keys": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		ways := both(n.at(s), append(n.peers(s), n.clients())...)
		n.set(region.Quality{Cut: true}, ways)
		defer n.set(region.Quality{}, ways)
		return n.place(ctx, n.others(s)[0], moveKeys, nil)
	},
}

// placing is a request that has keys move.
type placing func(context.Context, stoapb.PartitionsClient) error

// place draws a request about one of the keys that there are, sends it to a server, and does something else while it is
// under way. One that is refused isn't done, and without anything else neither is one that isn't answered.
func (n *nemesis) place(ctx context.Context, asked *process.Server, draw func(*nemesis, string, *stoapb.ListPartitionsResponse) placing, meanwhile func() error) error {
	conn, err := dial(asked.ClientURL)
	if err != nil {
		return err
	}
	defer conn.Close()
	key, is, err := n.lookAround(ctx, conn)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotDone, err)
	}
	ask := draw(n, key, is)
	if ask == nil {
		return fmt.Errorf("%w: there is nothing", errNotDone)
	}
	n.moved = true
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		answered <- ask(ctx, stoapb.NewPartitionsClient(conn))
	}()
	if meanwhile != nil {
		n.idle(60 * time.Millisecond)
		if err := meanwhile(); err != nil {
			return err
		}
	}
	err = <-answered
	if err != nil && (meanwhile == nil || status.Code(err) == codes.InvalidArgument) {
		return fmt.Errorf("%w: %w", errNotDone, err)
	}
	if err != nil {
		n.say("  not answered: %v", err)
	}
	return nil
}

// lookAround draws one of the keys that a server knows, and tells its partitions.
func (n *nemesis) lookAround(ctx context.Context, conn *grpc.ClientConn) (key string, is *stoapb.ListPartitionsResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if is, err = stoapb.NewPartitionsClient(conn).List(ctx, &stoapb.ListPartitionsRequest{}); err != nil {
		return "", nil, err
	}
	keys, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, KeysOnly: true, Serializable: true})
	if err != nil {
		return "", nil, err
	}
	if len(keys.Kvs) == 0 {
		return "", nil, errors.New("there are no keys")
	}
	return string(keys.Kvs[n.rnd.IntN(len(keys.Kvs))].Key), is, nil
}

// arrived waits until no server knows of keys that are on their way any more.
func (n *nemesis) arrived(ctx context.Context) error {
	if !n.moved {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, s := range n.cluster.Servers {
		for {
			moving, err := s.KeysMoving(ctx)
			if err == nil && !moving {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s: keys are still on their way (%w)", s.Name, errors.Join(err, ctx.Err()))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// moveKeys is for the slot of a key, or for all keys that a pin holds together with it.
func moveKeys(n *nemesis, key string, is *stoapb.ListPartitionsResponse) placing {
	to := uint32(n.rnd.IntN(len(is.Partitions)))
	for _, pin := range is.Pins {
		if strings.HasPrefix(key, string(pin.Prefix)) {
			return n.pin(string(pin.Prefix), to)
		}
	}
	n.say("  %s to %d", key, to)
	return func(ctx context.Context, c stoapb.PartitionsClient) error {
		_, err := c.Move(ctx, &stoapb.MoveKeysRequest{Prefix: []byte(key), Partition: to})
		return err
	}
}

// pinKeys is for the first directory that a key is in, or the second one, if there is.
func pinKeys(n *nemesis, key string, is *stoapb.ListPartitionsResponse) placing {
	parts := strings.SplitAfter(key, "/")
	dir := strings.Join(parts[:min(2+n.rnd.IntN(2), len(parts)-1)], "")
	return n.pin(dir, uint32(n.rnd.IntN(len(is.Partitions))))
}

func (n *nemesis) pin(prefix string, to uint32) placing {
	n.say("  all of %s to %d", prefix, to)
	return func(ctx context.Context, c stoapb.PartitionsClient) error {
		_, err := c.Pin(ctx, &stoapb.PinKeysRequest{Prefix: []byte(prefix), Partition: to})
		return err
	}
}

func unpinKeys(n *nemesis, _ string, is *stoapb.ListPartitionsResponse) placing {
	if len(is.Pins) == 0 {
		return nil
	}
	pin := is.Pins[n.rnd.IntN(len(is.Pins))].Prefix
	n.say("  %s", pin)
	return func(ctx context.Context, c stoapb.PartitionsClient) error {
		_, err := c.Unpin(ctx, &stoapb.UnpinKeysRequest{Prefix: pin})
		return err
	}
}

func balance(n *nemesis, _ string, _ *stoapb.ListPartitionsResponse) placing {
	return func(ctx context.Context, c stoapb.PartitionsClient) error {
		d, err := c.Balance(ctx, &stoapb.BalanceRequest{})
		if err == nil && len(d.Moves) == 0 {
			return errors.New(d.Reason)
		}
		return err
	}
}
