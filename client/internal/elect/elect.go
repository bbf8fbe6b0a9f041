// Package elect elects one of several processes by a lease in a cluster. It is to save work and
// no protection: what a process that lost its lease still writes must be refused by other means.
package elect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// ErrLeaseLost is the error of a process whose lease has ended.
var ErrLeaseLost = errors.New("the lease of the elected process is lost")

// Campaign waits until this process is elected among those that campaign with the same prefix
// of keys. The context that it returns ends with the lease, whose TTL is in whole seconds; leave
// gives it back.
func Campaign(ctx context.Context, c *clientv3.Client, prefix string, ttl time.Duration) (elected context.Context, leave func(), err error) {
	asking, cancel := context.WithTimeout(ctx, ttl)
	granted, err := c.Grant(asking, int64(ttl/time.Second))
	cancel()
	if err != nil {
		return nil, nil, err
	}
	held, drop := context.WithCancel(context.WithoutCancel(ctx))
	leave = func() {
		drop()
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_, _ = c.Revoke(giving, granted.ID) // else it expires
	}
	elected, end := context.WithCancel(ctx)
	session, err := concurrency.NewSession(within(elected, c), concurrency.WithLease(granted.ID), concurrency.WithContext(held))
	if err != nil {
		end()
		leave()
		return nil, nil, err
	}
	go func() {
		<-session.Done()
		end()
	}()
	if err := concurrency.NewElection(session, prefix).Campaign(elected, Name()); err != nil {
		leave()
		return nil, nil, LeaseLost(ctx, elected, err)
	}
	return elected, leave, nil
}

// within is a client with a context that ends: one whose candidacy has ended resigns for as long as that allows, whether or not
// the cluster can be reached. The end of the lease does the same.
func within(ctx context.Context, c *clientv3.Client) *clientv3.Client {
	ends := clientv3.NewCtxClient(ctx)
	ends.KV, ends.Watcher, ends.Lease = c.KV, c.Watcher, c.Lease
	return ends
}

// pause is between a term that failed and the next one.
const pause = time.Second

// Terms has one term follow the other until the context ends: nil. A term ends with an error, which
// failed is told. One that is final is for an operator: Terms returns it, or, if persist isn't 0, begins again
// after that time only.
func Terms(ctx context.Context, term func(context.Context) error, final func(error) bool, persist time.Duration, failed func(error)) error {
	for {
		err, wait := term(ctx), pause
		switch {
		case ctx.Err() != nil:
			return nil
		case !final(err):
		case persist > 0:
			wait = persist
		default:
			return err
		}
		failed(err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// LeaseLost replaces the errors of requests that were cancelled because the lease has ended.
func LeaseLost(ctx, elected context.Context, err error) error {
	if ctx.Err() == nil && elected.Err() != nil {
		return ErrLeaseLost
	}
	return err
}

// Name is one that no other process and no other call has: host, pid and chance.
func Name() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s pid %d %s", host, os.Getpid(), rand.Text()[:8])
}
