package compose

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// PutAsync puts without waiting for the answer. As all …Async methods it waits only
// when Config.Pending requests wait before it, or, on a stoa cluster, are unanswered.
func (c *Client) PutAsync(key, val string, opts ...clientv3.OpOption) *client.Future[*clientv3.PutResponse] {
	if _, f := c.quickPut(context.Background(), key, val, opts); f != nil {
		return public(f)
	}
	return async(c, clientv3.OpPut(key, val, opts...), func(m proto.Message) *clientv3.PutResponse {
		return (*clientv3.PutResponse)(m.(*pb.PutResponse))
	})
}

// GetAsync reads without waiting for the answer.
func (c *Client) GetAsync(key string, opts ...clientv3.OpOption) *client.Future[*clientv3.GetResponse] {
	if _, f := c.quickGet(context.Background(), key, opts); f != nil {
		return public(f)
	}
	return async(c, clientv3.OpGet(key, opts...), func(m proto.Message) *clientv3.GetResponse {
		return (*clientv3.GetResponse)(m.(*pb.RangeResponse))
	})
}

// DeleteAsync deletes without waiting for the answer.
func (c *Client) DeleteAsync(key string, opts ...clientv3.OpOption) *client.Future[*clientv3.DeleteResponse] {
	return async(c, clientv3.OpDelete(key, opts...), func(m proto.Message) *clientv3.DeleteResponse {
		return (*clientv3.DeleteResponse)(m.(*pb.DeleteRangeResponse))
	})
}

// TxnAsync sends a transaction without waiting for the answer.
func (c *Client) TxnAsync(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *client.Future[*clientv3.TxnResponse] {
	return async(c, clientv3.OpTxn(cmps, then, otherwise), func(m proto.Message) *clientv3.TxnResponse {
		return (*clientv3.TxnResponse)(m.(*pb.TxnResponse))
	})
}

// DoAsync sends any operation without waiting for the answer.
func (c *Client) DoAsync(op clientv3.Op) *client.Future[clientv3.OpResponse] {
	return async(c, op, opResponse)
}

// public returns a future's public type.
func public[T any](f *engine.Future[T]) *client.Future[T] { return (*client.Future[T])(f) }

// async sends an operation; turn makes what its future has of the answer.
func async[T any](c *Client, op clientv3.Op, turn func(proto.Message) T) *client.Future[T] {
	f := new(engine.Promise[T])
	done := func(m proto.Message, err error) {
		var v T
		if err == nil {
			v = turn(m)
		}
		f.Resolve(v, c.expired(err))
	}
	m, err := engine.Message(op)
	if err != nil {
		done(nil, err)
		return public(&f.Future)
	}
	r, pieces, err := c.prepare(m)
	switch {
	case err != nil:
		done(nil, err)
	case r != nil && r.locked || pieces != nil && pieces.locked():
		done(nil, fmt.Errorf("%w: an asynchronous request", ErrTransactions))
	case pieces != nil:
		c.core.readSpan(context.Background(), pieces, done)
	default:
		r.done = done
		if err := c.core.submit(context.Background(), r); err != nil {
			done(nil, err)
		}
	}
	return public(&f.Future)
}

// quickGet reads one key directly, if its cluster has a session, or its mirror a place, and no request
// waits; nil otherwise.
func (c *Client) quickGet(ctx context.Context, key string, opts []clientv3.OpOption) (*link, *engine.Future[*clientv3.GetResponse]) {
	r := c.shortcut(key, opts)
	if r == nil {
		return nil, nil
	}
	k := read
	if c.synced {
		k = syncedRead
	}
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if r.view != noView && !c.core.homeward(r) {
		if k != read {
			return nil, nil
		}
		return c.core.quickGlance(ctx, r, key)
	}
	ch, act := c.core.quick(r, k)
	if act == wait {
		return nil, nil
	}
	f, err := ch.get(ctx, r, act, key)
	if err != nil {
		return ch.l, failed[*clientv3.GetResponse](err)
	}
	return ch.l, f
}

// quickPut is quickGet for puts.
func (c *Client) quickPut(ctx context.Context, key, val string, opts []clientv3.OpOption) (*link, *engine.Future[*clientv3.PutResponse]) {
	r := c.shortcut(key, opts)
	if r == nil {
		return nil, nil
	}
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	ch, act := c.core.quick(r, update)
	if act == wait {
		return nil, nil
	}
	f, err := ch.put(ctx, r, act, key, val)
	if err != nil {
		return ch.l, failed[*clientv3.PutResponse](err)
	}
	return ch.l, f
}

// shortcut is the route of a request for one key that needs nothing but its place; nil if it needs more.
func (c *Client) shortcut(key string, opts []clientv3.OpOption) *route {
	if len(opts) > 0 || c.check() != nil || c.session != nil && c.session.Err() != nil {
		return nil
	}
	r := c.core.routes.find(key)
	if r == nil || r.locks || isReserved(r.keyThere(key)) {
		return nil
	}
	return r
}

// opResponse is the one type that etcd's Do has for all answers.
func opResponse(m proto.Message) clientv3.OpResponse {
	switch m := m.(type) {
	case *pb.RangeResponse:
		return (*clientv3.GetResponse)(m).OpResponse()
	case *pb.PutResponse:
		return (*clientv3.PutResponse)(m).OpResponse()
	case *pb.DeleteRangeResponse:
		return (*clientv3.DeleteResponse)(m).OpResponse()
	case *pb.TxnResponse:
		return (*clientv3.TxnResponse)(m).OpResponse()
	}
	return clientv3.OpResponse{}
}
