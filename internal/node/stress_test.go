package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/watch"
)

var stress = flag.Duration("stress", 3*time.Second, "how long the stress test runs")

// Three servers over real files and sockets lose and regain leadership, fall
// behind and install snapshots, stop and restart, while clients send all kinds
// of requests to all of them. Each request ends in its time, though its client
// sets none. What is acknowledged has a revision of its own and is seen by each
// strict read that begins later, and each server's watch, resumed where it was
// cut, gets all of it, once and in order.
func TestStress(t *testing.T) {
	quiet := zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	s := &strain{cluster: newCluster(t, 3, 2, shortLog, func(c *Config) { c.Logger = quiet }), slow: make([]atomic.Int64, 3)}
	for i := range s.nodes {
		s.stop(i)
		s.configs[i].Observe.WALSync = func(time.Duration) { time.Sleep(time.Duration(s.slow[i].Load())) }
	}
	for i := range s.nodes {
		s.start(i)
	}
	s.ready()
	var clients, watchers sync.WaitGroup
	for i := range 16 {
		clients.Go(func() { s.client(i) })
	}
	for i := range s.nodes {
		watchers.Go(func() { s.watch(i) })
	}
	for begun := time.Now(); time.Since(begun) < *stress; {
		s.trouble()
	}
	s.quiet.Store(true)
	clients.Wait()
	s.ready()
	s.goal.Store(s.put(0, "/last/k", ""))
	watchers.Wait()
	installed := int64(0)
	for _, n := range s.nodes {
		installed += n.installed.Load()
	}
	t.Logf("%d requests acknowledged, %d failed; %d servers stopped, %d snapshots taken in by those that run, %d changes of leader",
		s.done.Load(), s.failed.Load(), s.stops, installed, s.nodes[0].LeaderChanges())
}

type strain struct {
	*cluster
	mu    sync.RWMutex // of nodes
	slow  []atomic.Int64
	quiet atomic.Bool
	goal  atomic.Int64 // the watches end once they have seen this

	revs         sync.Map // acknowledged writes: revision → key
	seen         atomic.Int64
	done, failed atomic.Int64
	stops        int
}

func (s *strain) node(i int) *Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nodes[i]
}

func (s *strain) trouble() {
	i := rand.IntN(3)
	switch rand.IntN(4) {
	case 0:
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = s.nodes[i].MoveLeader(ctx, uint64(1+rand.IntN(3)))
		cancel()
	case 1: // others write more than their logs keep, so that it needs a snapshot
		n := s.nodes[i]
		s.mu.Lock()
		s.nodes[i] = nil
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		require.NoError(s.t, n.Stop(ctx))
		cancel()
		s.servers[i].Stop()
		s.stops++
		time.Sleep(rand.N(300 * time.Millisecond))
		n, err := Start(s.configs[i])
		require.NoError(s.t, err)
		s.mu.Lock()
		s.nodes[i] = n
		s.mu.Unlock()
		s.serve(i)
	case 2: // a disk that nearly stands still
		s.slow[i].Store(int64(rand.N(time.Second)))
		time.Sleep(rand.N(time.Second))
		s.slow[i].Store(0)
	case 3: // its loops are late, as on a machine that is busy
		s.nodes[i].rebuild.Lock()
		time.Sleep(rand.N(200 * time.Millisecond))
		s.nodes[i].rebuild.Unlock()
	}
	time.Sleep(rand.N(300 * time.Millisecond))
}

func (s *strain) client(id int) {
	for n := 0; !s.quiet.Load(); n++ {
		node := s.node(rand.IntN(3))
		if node == nil {
			continue
		}
		begun, floor := time.Now(), s.seen.Load()
		what, err := s.request(node, fmt.Sprintf("%d-%d", id, n), floor)
		// One attempt, those that follow it, and what a busy machine adds.
		if took := time.Since(begun); took > 2*node.cfg.requestTimeout()+10*time.Second {
			s.t.Errorf("%s took %v: %v", what, took, err)
		}
		switch {
		case err == nil:
			s.done.Add(1)
		case fault.Passing(err), errors.Is(err, fault.Stopped), errors.Is(err, fault.Timeout), errors.Is(err, fault.TooManyRequests):
			s.failed.Add(1)
			time.Sleep(10 * time.Millisecond)
		default:
			s.t.Errorf("%s: %v", what, err)
		}
	}
}

// request makes one of any kind.
func (s *strain) request(n *Node, name string, floor int64) (what string, err error) {
	ctx := context.Background() // without an end
	header := func(h *pb.ResponseHeader, err error) error {
		if err == nil && h.GetRevision() < floor {
			s.t.Errorf("%s is answered at %d, after %d was acknowledged", name, h.GetRevision(), floor)
		}
		return err
	}
	keys := []string{"/d0/" + name, "/d1/" + name, "/d2/" + name}
	key := keys[rand.IntN(3)]
	switch rand.IntN(6) {
	case 0, 1:
		resp, err := written(ctx, n, &pb.PutRequest{Key: []byte(key), Value: make([]byte, rand.IntN(2000))})
		if err != nil {
			return "put", err
		}
		s.acknowledged(resp.GetHeader().GetRevision(), key)
		return "put", header(resp.GetHeader(), nil)
	case 2:
		txn := &pb.TxnRequest{}
		for _, k := range keys {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(k)}}})
		}
		resp, err := n.Txn(ctx, txn)
		if header(resp.GetHeader(), err) == nil {
			s.acknowledged(resp.Header.Revision, keys[0])
		}
		return "transaction", err
	case 3:
		resp, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("/d"), RangeEnd: []byte("/e"), Limit: 3})
		if err != nil {
			return "range of all", err
		}
		return "range of all", header(resp.Message().GetHeader(), nil)
	case 4:
		resp, err := n.Range(ctx, &pb.RangeRequest{Key: []byte(key)})
		if err != nil {
			return "range", err
		}
		return "range", header(resp.Message().GetHeader(), nil)
	default:
		resp, err := n.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
		if err == nil {
			_, err = n.LeaseRenew(ctx, resp.ID)
		}
		return "lease", err
	}
}

func (s *strain) acknowledged(rev int64, key string) {
	if other, twice := s.revs.LoadOrStore(rev, key); twice {
		s.t.Errorf("%s and %s share revision %d", key, other, rev)
	}
	for old := s.seen.Load(); rev > old && !s.seen.CompareAndSwap(old, rev); old = s.seen.Load() {
	}
}

// watch follows everything at one server, and goes on behind what it has seen when the
// server has been stopped.
func (s *strain) watch(i int) {
	got := map[int64]bool{}
	last := int64(1)
	for goal := int64(0); goal == 0 || last < goal; goal = s.goal.Load() {
		n := s.node(i)
		if n == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		stream := n.NewWatchStream(context.Background())
		stream.Create(&pb.WatchCreateRequest{Key: []byte("/"), RangeEnd: []byte("0"), StartRevision: last + 1})
		last = s.follow(n, stream, last, got)
		stream.Close()
	}
	s.revs.Range(func(rev, key any) bool {
		if !got[rev.(int64)] {
			s.t.Errorf("the watch at server %d has not got revision %d (%s)", i, rev, key)
		}
		return true
	})
}

func (s *strain) follow(n *Node, stream *watch.Stream, last int64, got map[int64]bool) int64 {
	for {
		ctx, cancel := context.WithTimeout(n.life, 100*time.Millisecond)
		r, err := stream.Recv(ctx)
		cancel()
		if goal := s.goal.Load(); n.life.Err() != nil || goal != 0 && last >= goal {
			return last
		}
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil {
			s.t.Errorf("the watch at server %d: %v", n.cfg.ID, err)
			return last
		}
		for k, e := range r.Events {
			rev := e.Kv.ModRevision
			if rev < last || rev == last && k == 0 {
				s.t.Errorf("the watch at server %d gets %s at %d after %d", n.cfg.ID, e.Kv.Key, rev, last)
			}
			last = rev
			got[rev] = true
		}
	}
}
