package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// opTimeout is how long a client waits for an answer before it gives the operation up.
const opTimeout = 3 * time.Second

// client is one client: it does one operation after the other, on any server.
type client struct {
	conns func() []*grpc.ClientConn // of the servers that there are now
	rnd   *rand.Rand
	ids   func() int64
	known [keyCount]version // what it saw last: the ground of its conditions
}

// dial connects to a server so that it is found again soon after a restart.
func dial(url string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	return conn, nil
}

// next draws an operation.
func (c *client) next() request {
	r := request{}
	switch n := c.rnd.IntN(100); {
	case n < 25:
		r.kind = opGet
	case n < 40:
		r.kind = opGetAll
	case n < 65:
		r.kind = opPut
	case n < 80:
		r.kind = opSwap
	case n < 92:
		r.kind = opMulti
	default:
		r.kind = opMove
	}
	perm := c.rnd.Perm(keyCount)
	switch r.kind {
	case opGetAll:
	case opMulti:
		r.keys = perm[:2+c.rnd.IntN(3)]
	case opMove:
		r.keys = perm[:2]
	default:
		r.keys = perm[:1]
	}
	if r.kind != opGet && r.kind != opGetAll {
		r.id = c.ids()
	}
	r.mods = map[int]int64{}
	for _, k := range r.keys {
		r.mods[k] = c.known[k].mod
	}
	return r
}

// do asks a server. An error says nothing about whether a write happened.
func (c *client) do(r request) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	conns := c.conns()
	kv := pb.NewKVClient(conns[c.rnd.IntN(len(conns))])
	out := answer{read: map[int]version{}}
	switch r.kind {
	case opGet, opGetAll:
		req := r.ranges()
		resp, err := kv.Range(ctx, req)
		if err != nil {
			return out, err
		}
		out.rev = resp.Header.Revision
		out.see(r, resp.Kvs)
	case opPut:
		resp, err := kv.Put(ctx, r.put(r.keys[0]))
		if err != nil {
			return out, err
		}
		out.rev = resp.Header.Revision
	default:
		resp, err := kv.Txn(ctx, r.txn())
		if err != nil {
			return out, err
		}
		out.rev, out.failed = resp.Header.Revision, !resp.Succeeded
		if out.failed {
			out.see(request{kind: opGetAll}, resp.Responses[0].GetResponseRange().Kvs)
		}
	}
	c.learn(r, out)
	return out, nil
}

func (c *client) learn(r request, out answer) {
	for k, v := range out.read {
		c.known[k] = v
	}
	if r.id == 0 || out.failed {
		return
	}
	for i, k := range r.keys {
		c.known[k] = version{id: r.id, mod: out.rev}
		if r.kind == opMove && i == 0 {
			c.known[k] = version{}
		}
	}
}

// everything is the range of all keys.
func everything() *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte("/faults/"), RangeEnd: []byte("/faults0")}
}

func (r request) ranges() *pb.RangeRequest {
	if r.kind == opGetAll {
		return everything()
	}
	return &pb.RangeRequest{Key: []byte(keyName(r.keys[0]))}
}

func (r request) put(k int) *pb.PutRequest {
	return &pb.PutRequest{Key: []byte(keyName(k)), Value: strconv.AppendInt(nil, r.id, 10)}
}

// txn is a write as a transaction; where its condition doesn't hold it reads all keys.
func (r request) txn() *pb.TxnRequest {
	t := &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: everything()}}}}
	for i, k := range r.keys {
		if r.kind != opMulti {
			t.Compare = append(t.Compare, &pb.Compare{Key: []byte(keyName(k)), Target: pb.Compare_MOD,
				TargetUnion: &pb.Compare_ModRevision{ModRevision: r.mods[k]}})
		}
		op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r.put(k)}}
		if r.kind == opMove && i == 0 {
			op = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(keyName(k))}}}
		}
		t.Success = append(t.Success, op)
	}
	return t
}

// see files what a read found; a key that it asked for and didn't find is empty.
func (a *answer) see(r request, kvs []*mvccpb.KeyValue) {
	asked := r.keys
	if r.kind == opGetAll {
		asked = []int{0, 1, 2, 3, 4, 5}
	}
	for _, k := range asked {
		a.read[k] = version{}
	}
	for _, kv := range kvs {
		k, v := parse(kv)
		a.read[k] = v
	}
}

// parse reads a key and its version back.
func parse(kv *mvccpb.KeyValue) (int, version) {
	id, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil && len(kv.Value) > 0 {
		id = -1 // no client wrote that
	}
	return int(kv.Key[len("/faults/")] - 'a'), version{id: id, mod: kv.ModRevision}
}
