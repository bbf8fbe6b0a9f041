package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/elle"
)

// Transactions that append to lists and read them, over several directories, so several
// partitions. A list is one key; to append, a client reads the keys that it wants, and commits if
// none has changed meanwhile. What it reads is read by the transaction itself.

const (
	appendsRoot = "/lists/"
	openLists   = 5  // lists that are in use at a time
	listLength  = 32 // of a list, about: then another takes its place
)

// appends is a history in the making.
type appends struct {
	start time.Time
	mu    sync.Mutex
	txns  []*elle.Txn
	value int
	count map[int]int // appends by list, of those in use
	lists []int
	next  int
}

func newAppends() *appends {
	a := &appends{start: time.Now(), count: map[int]int{}}
	for range openLists {
		a.lists = append(a.lists, a.next)
		a.next++
	}
	return a
}

func (a *appends) now() int64 { return int64(time.Since(a.start)) }

func listKey(i int) string { return fmt.Sprintf("%s%d/%d", appendsRoot, i%7, i) }

// draw makes a transaction.
func (a *appends) draw(client int, rnd *rand.Rand) *elle.Txn {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &elle.Txn{Client: client}
	reads := rnd.IntN(3) == 0
	appended := map[string]bool{} // a transaction may put a key once
	for range 1 + rnd.IntN(4) {
		at := rnd.IntN(openLists)
		s := elle.Step{Key: listKey(a.lists[at])}
		if !reads && !appended[s.Key] && rnd.IntN(2) == 0 {
			appended[s.Key] = true
			a.value++
			s.Append = a.value
			if a.count[a.lists[at]]++; a.count[a.lists[at]] >= listLength {
				a.lists[at] = a.next
				a.next++
			}
		}
		t.Steps = append(t.Steps, s)
	}
	return t
}

func (a *appends) add(t *elle.Txn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.txns = append(a.txns, t)
}

// run does one transaction after the other, on any server.
func (a *appends) run(ctx context.Context, client int, conns []*grpc.ClientConn, rnd *rand.Rand) {
	for ctx.Err() == nil {
		t := a.draw(client, rnd)
		t.Sent = a.now()
		err := carryOut(pb.NewKVClient(conns[rnd.IntN(len(conns))]), t)
		t.Answered = a.now()
		a.add(t)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// carryOut sends a transaction, and notes what came of it.
func carryOut(kv pb.KVClient, t *elle.Txn) error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	t.Outcome = elle.Failed // as long as nothing is sent that writes
	req, err := planned(ctx, kv, t)
	if err != nil {
		return err
	}
	resp, err := kv.Txn(ctx, req)
	switch {
	case status.Code(err) == codes.InvalidArgument:
		return fmt.Errorf("a transaction that isn't one: %w", err)
	case err != nil:
		t.Outcome = elle.Unknown
		return err
	case !resp.Succeeded:
		return nil
	}
	t.Outcome = elle.OK
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Append == 0 {
			s.Read, err = listFrom(resp.Responses[i].GetResponseRange())
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// planned reads the lists that are appended to and makes the transaction, which holds if none of
// them has changed. One that only reads has no condition.
func planned(ctx context.Context, kv pb.KVClient, t *elle.Txn) (*pb.TxnRequest, error) {
	req := &pb.TxnRequest{}
	text := map[string]string{}
	for _, s := range t.Steps {
		if _, known := text[s.Key]; s.Append == 0 || known {
			continue
		}
		// Stale reads do no harm: the condition finds them.
		resp, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte(s.Key), Serializable: true})
		if err != nil {
			return nil, err
		}
		mod := int64(0)
		text[s.Key] = ""
		if len(resp.Kvs) > 0 {
			mod, text[s.Key] = resp.Kvs[0].ModRevision, string(resp.Kvs[0].Value)
		}
		req.Compare = append(req.Compare, &pb.Compare{Key: []byte(s.Key), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: mod}})
	}
	for _, s := range t.Steps {
		if s.Append == 0 {
			req.Success = append(req.Success, readOf(s.Key))
			continue
		}
		value := strings.TrimSpace(text[s.Key] + " " + strconv.Itoa(s.Append))
		req.Success = append(req.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte(s.Key), Value: []byte(value)}}})
	}
	return req, nil
}

func readOf(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

// listFrom reads a list back.
func listFrom(resp *pb.RangeResponse) (list []int, err error) {
	if len(resp.Kvs) == 0 {
		return nil, nil
	}
	for _, word := range strings.Fields(string(resp.Kvs[0].Value)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("the list %s is %q, which no client wrote", resp.Kvs[0].Key, resp.Kvs[0].Value)
		}
		list = append(list, n)
	}
	return list, nil
}
