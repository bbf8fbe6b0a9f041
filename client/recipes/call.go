package recipes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/stoa-kv/stoa/extensions"
)

// KV is the part of clientv3.KV that recipes use. [Task.Done] and [Leadership.Resign] use Txn, too, if there is one.
type KV interface {
	Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
	Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error)
	Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error)
}

// Watcher is the part of clientv3.Watcher that recipes use.
type Watcher interface {
	Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan
}

// Client is what recipes that wait need.
type Client interface {
	KV
	Watcher
}

// handle is the client of a recipe. A zero value has none: its calls fail.
type handle struct {
	kv      KV
	watcher Watcher
}

var errNoClient = errors.New("there is no client: a zero value, or one that was made without a client")

func (h handle) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if h.kv == nil {
		return nil, errNoClient
	}
	return h.kv.Get(ctx, key, opts...)
}

func (h handle) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if h.kv == nil {
		return nil, errNoClient
	}
	return h.kv.Put(ctx, key, value, opts...)
}

func (h handle) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	if h.kv == nil {
		return nil, errNoClient
	}
	return h.kv.Delete(ctx, key, opts...)
}

// deleteIf deletes a key on a condition, and tells whether it has. A client without transactions can't compare: it deletes the
// key in any case.
func (h handle) deleteIf(ctx context.Context, condition clientv3.Cmp, key string) (deleted bool, err error) {
	kv, ok := h.kv.(interface {
		Txn(ctx context.Context) clientv3.Txn
	})
	if !ok {
		resp, err := h.Delete(ctx, key)
		return err == nil && resp.Deleted > 0, err
	}
	resp, err := kv.Txn(ctx).If(condition).Then(clientv3.OpDelete(key)).Commit()
	return err == nil && resp.Succeeded, err
}

func (h handle) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	if h.watcher == nil {
		ch := make(chan clientv3.WatchResponse, 1)
		ch <- clientv3.WatchResponse{Canceled: true, CancelReason: errNoClient.Error()}
		close(ch)
		return ch
	}
	return h.watcher.Watch(ctx, key, opts...)
}

// ErrUnhandled: the call was executed on plain keys. The extension isn't
// registered, or this client hasn't acknowledged it; [Register] does both.
var ErrUnhandled = errors.New("no extension has handled the call")

// metadataLease names the lease that a call comes with.
const metadataLease = "stoa-lease"

// WithLease gives a lease to every gRPC call and watch made with the context,
// for extensions that tie keys to the client (monitor) when a request itself
// has no lease, as watches have none. The recipes of this package don't need
// it: they take the lease as an argument. Nor do sessions: their requests carry
// the session's lease.
func WithLease(ctx context.Context, lease clientv3.LeaseID) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(metadataLease, strconv.FormatInt(int64(lease), 16))
	return metadata.NewOutgoingContext(ctx, md)
}

func rootOf(recipe, root string) string {
	if root == "" {
		return extensions.Root(recipe)
	}
	return root
}

// call makes a put that an extension handles and returns the value of its
// answer, nil if it has none.
func call(ctx context.Context, kv KV, key, value string, opts ...clientv3.OpOption) (*mvccpb.KeyValue, error) {
	resp, err := kv.Put(ctx, key, value, opts...)
	if err != nil {
		return nil, err
	}
	return resp.PrevKv, nil
}

// callNumber makes a put whose answer is always a number.
func callNumber(ctx context.Context, kv KV, key, value string) (int64, error) {
	answer, err := call(ctx, kv, key, value)
	if err != nil {
		return 0, err
	}
	return number(answer)
}

func number(answer *mvccpb.KeyValue) (int64, error) {
	if answer == nil {
		return 0, ErrUnhandled
	}
	n, err := strconv.ParseInt(string(answer.Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the answer is no number: %w", err)
	}
	return n, nil
}

// one is the only key-value of a read, nil if there is none.
func one(resp *clientv3.GetResponse) *mvccpb.KeyValue {
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// await opens a watch that an extension handles and returns the first key-value that it
// is given.
func await(ctx context.Context, w Watcher, key string) (*mvccpb.KeyValue, error) {
	ch, stop, err := open(ctx, w, key, clientv3.WithFilterDelete())
	if err != nil {
		return nil, err
	}
	defer stop()
	return first(ctx, ch)
}

// cleanupTimeout bounds the cleanup of a call after its context has ended.
const cleanupTimeout = 2 * time.Second

// open opens a watch, which doesn't end with the context. It doesn't return
// before the server has answered, even if the context ends: otherwise the
// deletes of forget could overtake the opening, and the server would keep a
// place for a participant that has left.
func open(ctx context.Context, w Watcher, key string, opts ...clientv3.OpOption) (clientv3.WatchChan, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	opened := make(chan clientv3.WatchChan, 1)
	go func() { opened <- w.Watch(watching, key, opts...) }()
	select {
	case ch := <-opened:
		return ch, stop, nil
	case <-ctx.Done():
	}
	select {
	case <-opened:
	case <-time.After(cleanupTimeout):
	}
	stop()
	return nil, nil, ctx.Err()
}

// first returns the first key-value that a watch delivers.
func first(ctx context.Context, ch clientv3.WatchChan) (*mvccpb.KeyValue, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case resp, ok := <-ch:
			if !ok {
				return nil, errors.New("the watch has ended without an event")
			}
			if err := resp.Err(); err != nil {
				return nil, err
			}
			for _, ev := range resp.Events {
				if ev.Type == clientv3.EventTypePut {
					return ev.Kv, nil
				}
			}
		}
	}
}

// forget deletes the keys of a waiting call after it has failed. If it fails
// too, the lease's expiry deletes them.
func forget(ctx context.Context, kv KV, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, key := range keys {
		kv.Delete(ctx, key)
	}
}

// participant is the suffix of a key that names the participant and its lease.
func participant(id string, lease clientv3.LeaseID) (string, error) {
	if err := checkName("id", id); err != nil {
		return "", err
	}
	if lease == clientv3.NoLease {
		return id, nil
	}
	return fmt.Sprintf("%s/%x", id, int64(lease)), nil
}

func checkName(what, name string) error {
	if name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q can't be the %s: it is empty or has a slash", name, what)
	}
	return nil
}
