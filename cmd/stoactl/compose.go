package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/client/compose/file"
)

// store is the target of commands on keys and leases: one cluster, or a
// composition of several.
type store interface {
	clientv3.KV
	clientv3.Watcher
	clientv3.Lease
}

// perCluster are the flags that the file of --compose replaces.
var perCluster = []string{
	"endpoints", "insecure-transport", "insecure-skip-tls-verify", "cert", "key", "cacert", "user", "password", "lease",
}

// checkCompose refuses flags that --compose makes meaningless.
func (a *app) checkCompose(cmd *cobra.Command) error {
	if a.o.compose == "" {
		return nil
	}
	for _, name := range perCluster {
		if cmd.Root().PersistentFlags().Changed(name) {
			return badArgs("--%s is about one cluster: with --compose, the file says it for each", name)
		}
	}
	return nil
}

// open connects to the composition of --compose, or else to the cluster of
// --endpoints.
func (a *app) open() (store, error) {
	if a.o.compose == "" {
		return a.connect()
	}
	if err := a.checkForm(); err != nil {
		return nil, err
	}
	cfg, err := file.Read(a.o.compose, a.logger())
	if err != nil {
		return nil, badArgs("%w", err)
	}
	cfg.DialTimeout, cfg.Timeout, cfg.ClientID = a.o.dial, a.o.command, a.o.client
	c, err := compose.New(cfg)
	if err != nil {
		return nil, badArgs("composition %s: %w", a.o.compose, err)
	}
	return c, nil
}

// withStore runs f on what open opens, within the time that a command may take.
func (a *app) withStore(f func(context.Context, store) error) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.Close()
	limit := a.o.command
	if a.o.compose != "" {
		limit += a.o.dial // so that the composition can say which cluster is silent
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return explained(s, f(ctx, s))
}

// explained adds the known reason of a missing answer to an error; a
// composition's errors have it already.
func explained(s store, err error) error {
	if c, ok := s.(*connection); ok {
		return c.explain(err)
	}
	return err
}

// happening is a delivery of a watch. In a composition, a revision is a
// cluster's.
type happening struct {
	Cluster string `json:",omitempty"`
	clientv3.WatchResponse
	err error // why the watch has ended
}

// openWatch opens a watch and returns the function that waits for its next
// delivery: nil at its end. Over a composition, a range may lie in several
// clusters; the events are merged then.
func openWatch(ctx context.Context, s store, key string, opts []clientv3.OpOption) (func() *happening, error) {
	c, composed := s.(*compose.Client)
	if !composed {
		ch := s.Watch(clientv3.WithRequireLeader(ctx), key, opts...)
		return func() *happening {
			r, ok := <-ch
			if !ok {
				return nil
			}
			return &happening{WatchResponse: r, err: r.Err()}
		}, nil
	}
	feed := c.NewFeed()
	if _, err := feed.Watch(ctx, key, opts...); err != nil {
		return nil, fmt.Errorf("opening the watch: %w", err)
	}
	ended := false
	return func() *happening {
		if ended {
			return nil
		}
		n, err := feed.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = n.Err
		}
		// If one of its parts ends, the watch is incomplete.
		ended = err != nil
		return &happening{Cluster: n.Cluster, err: err, WatchResponse: clientv3.WatchResponse{
			Header: &pb.ResponseHeader{Revision: n.Revision}, Events: n.Events, Canceled: ended,
		}}
	}, nil
}
