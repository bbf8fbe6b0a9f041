package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/commands"
	"github.com/stoa-kv/stoa/client/mirror"
)

// leasing grants leases, and has no news of them.
type leasing struct {
	clientv3.Lease
}

func (leasing) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: 1}, nil
}

func (leasing) KeepAlive(context.Context, clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	return nil, nil
}

func (leasing) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return nil, nil
}

// takingOnce takes one batch under each key of a client, and then the key is gone.
type takingOnce struct {
	clientv3.KV
	mu  sync.Mutex
	had map[string]bool
	key string // that was put last
}

func (k *takingOnce) Put(_ context.Context, key, _ string, _ ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.key = key
	return &clientv3.PutResponse{}, nil
}

func (k *takingOnce) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return nil, errors.New("no record of what is done")
}

func (k *takingOnce) Txn(context.Context) clientv3.Txn { return &takingTxn{k: k} }

type takingTxn struct {
	clientv3.Txn
	k *takingOnce
}

func (t *takingTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t *takingTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t *takingTxn) Else(...clientv3.Op) clientv3.Txn { return t }

func (t *takingTxn) Commit() (*clientv3.TxnResponse, error) {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	if t.k.had[t.k.key] {
		none := &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}}
		return &clientv3.TxnResponse{Responses: []*pb.ResponseOp{{Response: none}}}, nil
	}
	t.k.had[t.k.key] = true
	return &clientv3.TxnResponse{Succeeded: true, Header: &pb.ResponseHeader{Revision: int64(len(t.k.had))}}, nil
}

// A client whose lease has ended while it had nothing to send sends the next command under another one.
func TestCommandsBehindAnExpiredLease(t *testing.T) {
	home := clientv3.NewCtxClient(t.Context())
	home.KV, home.Lease = &takingOnce{had: map[string]bool{}}, leasing{}
	q := NewClient(ClientConfig{
		Clusters: []string{"eu", "us"}, Limits: mirror.Limits{Ops: 127, Bytes: 1 << 20},
		Dial: func(context.Context, string) (*clientv3.Client, error) { return home, nil },
	})
	defer q.Close()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		require.NoError(t, q.Send(commands.Command{{Op: mirror.Op{Key: []byte("a")}}}).Taken(ctx))
		cancel()
		require.Eventually(t, func() bool { return len(q.more) == 0 }, 10*time.Second, time.Millisecond, "it waits for more")
	}
}

// refusing is a cluster that grants leases, and lets the user put no key.
type refusing struct {
	takingOnce
	leasing
	granted, revoked atomic.Int64
}

func (r *refusing) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	r.revoked.Add(1)
	return nil, nil
}

func (r *refusing) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: clientv3.LeaseID(r.granted.Add(1))}, nil
}

func (r *refusing) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, rpctypes.ErrPermissionDenied
}

// A client that may not send commands asks once for each, and not again and again.
func TestCommandsThatAreRefused(t *testing.T) {
	home, r := clientv3.NewCtxClient(t.Context()), &refusing{}
	home.KV, home.Lease = r, r
	q := NewClient(ClientConfig{
		Clusters: []string{"eu", "us"}, Limits: mirror.Limits{Ops: 127, Bytes: 1 << 20},
		Dial: func(context.Context, string) (*clientv3.Client, error) { return home, nil },
	})
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		require.ErrorIs(t, q.Send(commands.Command{{Op: mirror.Op{Key: []byte("a")}}}).Taken(ctx), rpctypes.ErrPermissionDenied)
		cancel()
	}
	time.Sleep(50 * time.Millisecond)
	require.LessOrEqual(t, r.granted.Load(), int64(2))
	q.Close()
	require.Equal(t, r.granted.Load(), r.revoked.Load())
}
