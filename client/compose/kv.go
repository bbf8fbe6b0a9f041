package compose

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Put puts a key.
func (c *Client) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if l, f := c.quickPut(ctx, key, val, opts); f != nil {
		return await(ctx, l, f, true)
	}
	m, err := c.do(ctx, clientv3.OpPut(key, val, opts...))
	a, _ := m.(*pb.PutResponse)
	return (*clientv3.PutResponse)(a), err
}

// Get reads a key, or the range that the options say. The read is local, or a synced
// one, as the order demands. clientv3.WithSerializable changes nothing.
func (c *Client) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if l, f := c.quickGet(ctx, key, opts); f != nil {
		a, err := await(ctx, l, f, false)
		if !errors.Is(err, client.ErrOvertaken) {
			return a, err
		}
	}
	m, err := c.do(ctx, clientv3.OpGet(key, opts...))
	a, _ := m.(*pb.RangeResponse)
	return (*clientv3.GetResponse)(a), err
}

// Delete deletes a key, or the range that the options say, which must lie in one
// cluster.
func (c *Client) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	m, err := c.do(ctx, clientv3.OpDelete(key, opts...))
	a, _ := m.(*pb.DeleteRangeResponse)
	return (*clientv3.DeleteResponse)(a), err
}

// Do does any operation.
func (c *Client) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	m, err := c.do(ctx, op)
	return opResponse(m), err
}

// GetStream is Get, in one piece.
func (c *Client) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	got, err := c.Get(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	out := make(chan clientv3.RangeStreamResponse, 1)
	out <- clientv3.RangeStreamResponse{RangeResponse: (*pb.RangeResponse)(got)}
	close(out)
	return out, nil
}

// Compact is refused: a revision is one cluster's.
func (c *Client) Compact(context.Context, int64, ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return nil, fmt.Errorf("%w: compaction; a revision is one cluster's, ask that cluster's client", ErrNotOverSpan)
}

// Txn builds a transaction. If its keys live in several clusters, their routes must all have
// Transactions, and only comparisons and operations of single keys are possible, without
// leases, at most 60 keys in each cluster. It is atomic, whatever fails: if the error is a
// *ClusterError with Unknown set, it takes effect in all clusters or in none.
func (c *Client) Txn(ctx context.Context) clientv3.Txn { return newTxn(ctx, c) }

// do does an operation and waits for its answer.
func (c *Client) do(ctx context.Context, op clientv3.Op) (proto.Message, error) {
	m, err := engine.Message(op)
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, m)
}

// ask sends a message and waits for its answer.
func (c *Client) ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	if x, err := c.across(m); x != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return c.transact(ctx, x)
	}
	r, pieces, err := c.prepare(m)
	switch {
	case err != nil:
		return nil, err
	case pieces != nil && pieces.locked():
		return c.readPieces(ctx, pieces)
	case pieces != nil:
		return inPlace(func() (proto.Message, error) {
			f := new(engine.Promise[proto.Message])
			waits := c.core.readSpan(ctx, pieces, f.Resolve)
			m, err := f.Wait(ctx)
			if err != nil && ctx.Err() != nil {
				err = waits().left(ctx, err, false)
			}
			return m, err
		})
	}
	if r.locked {
		return c.guarded(ctx, r)
	}
	return c.wait(ctx, r)
}

// inPlace does a synchronous operation: a read that was overtaken is sent
// again, in a new place. Its caller has sent nothing after the old one.
func inPlace[T any](do func() (T, error)) (T, error) {
	for {
		if v, err := do(); !errors.Is(err, client.ErrOvertaken) {
			return v, err
		}
	}
}

// prepare routes a message: to one cluster, or, if asked for, pieces of it to
// several.
func (c *Client) prepare(m proto.Message) (*request, *span, error) {
	if err := c.check(); err != nil {
		return nil, nil, err
	}
	lease := clientv3.LeaseID(0)
	if c.session != nil {
		if err := c.session.Err(); err != nil {
			return nil, nil, err
		}
		lease = c.session.ID()
	}
	bound, err := engine.Bind(m, int64(lease))
	if err != nil {
		return nil, nil, err
	}
	if q, ok := m.(*pb.RangeRequest); ok && c.core.cfg.SpanRanges && len(q.RangeEnd) > 0 {
		if pieces, err := c.core.routes.span(q); pieces != nil || err != nil {
			if pieces != nil && c.synced {
				pieces.kind = syncedRead
			}
			return nil, pieces, err
		}
	}
	k := kindOf(m)
	if k == read && c.synced {
		k = syncedRead
	}
	at, err := c.core.routes.place(m)
	if err != nil {
		return nil, nil, err
	}
	if bound && !c.session.in(at.cluster) {
		return nil, nil, fmt.Errorf("compose: the session has no lease in cluster %q, where an ephemeral key would be", c.core.routes.names[at.cluster])
	}
	return &request{placement: at, kind: k, session: c.session}, nil, nil
}

// wait sends a request and waits for its answer. If nothing is before it at an etcd
// cluster, the call is made here and now.
func (c *Client) wait(ctx context.Context, r *request) (proto.Message, error) {
	if e := c.core.direct(r); e != nil {
		m, err := e.now(ctx, r)
		return m, c.expired(err)
	}
	l := c.core.links[r.cluster] // once it is sent, its core decides
	m, err := inPlace(func() (proto.Message, error) {
		f := new(engine.Promise[proto.Message])
		r.done, r.by = f.Resolve, time.Time{}
		if err := c.core.submit(ctx, r); err != nil {
			return nil, err
		}
		return await(ctx, l, &f.Future, r.kind == update)
	})
	return m, c.expired(err)
}

// await waits for an answer. A context that ends first is an error that names the
// cluster.
func await[T any](ctx context.Context, l *link, f *engine.Future[T], writes bool) (T, error) {
	v, err := f.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		err = l.cluster.left(ctx, err, writes)
	}
	return v, err
}

// left is the error of a request whose context has ended before its answer.
func (c *cluster) left(ctx context.Context, err error, writes bool) error {
	var named *ClusterError
	if errors.As(err, &named) {
		return err
	}
	return c.named(ctx.Err(), writes)
}

// expired checks the session when a lease has expired.
func (c *Client) expired(err error) error {
	if err != nil && c.check() == nil && c.session != nil && errors.Is(err, rpctypes.ErrLeaseNotFound) {
		c.session.look()
	}
	return err
}
