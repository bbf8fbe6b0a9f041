package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// methods are the operations that can be measured.
var methods = map[string]string{
	"put":  "/etcdserverpb.KV/Put",
	"get":  "/etcdserverpb.KV/Range",
	"sget": "/etcdserverpb.KV/Range",
	// What these ask for is the measurement's matter.
	"txn":   "/etcdserverpb.KV/Txn",
	"lease": "/etcdserverpb.Lease/LeaseGrant",
}

// maxConns is the number of connections that clients share at most.
const maxConns = 100

// load generates requests on one cluster.
type load struct {
	addresses []string
	conns     int                 // that clients share at most
	buffer    int                 // of each connection, both ways
	pace      float64             // all clients together, per second; 0: as fast as answers come
	hold      chan struct{}       // connections are idle until it is closed; may be nil
	failed    *atomic.Int64       // counts answers that are errors, of a paced load; nil: one ends it
	requests  map[string][][]byte // by operation: encoded, one for each key
	value     int
	token     string // of the clients' user; "": they are none
}

func newLoad(endpoints []string, keys, value int) (*load, error) {
	l := &load{requests: map[string][][]byte{}, value: value, conns: maxConns, buffer: 64 << 10}
	for _, e := range endpoints {
		l.addresses = append(l.addresses, strings.TrimPrefix(e, "http://"))
	}
	for i := range keys {
		key := []byte(keyName(i))
		for op, m := range map[string]proto.Message{
			"put":  &pb.PutRequest{Key: key, Value: bytes.Repeat([]byte{'x'}, value)},
			"get":  &pb.RangeRequest{Key: key},
			"sget": &pb.RangeRequest{Key: key, Serializable: true},
		} {
			b, err := proto.Marshal(m)
			if err != nil {
				return nil, fmt.Errorf("encoding the requests: %w", err)
			}
			l.requests[op] = append(l.requests[op], b)
		}
	}
	return l, nil
}

// fill puts every key once.
func (l *load) fill() error {
	var next atomic.Int64
	puts := l.requests["put"]
	r := l.run("put", 100, func(int) []byte { return puts[int(next.Add(1)-1)%len(puts)] },
		func() bool { return int(next.Load()) >= len(puts) })
	return r.wait()
}

// start starts the clients: each requests random keys, one after the other,
// until the load is stopped.
func (l *load) start(op string, clients int) *running {
	requests := l.requests[op]
	rnds := make([]*rand.Rand, clients)
	for c := range rnds {
		rnds[c] = rand.New(rand.NewPCG(uint64(c), 7))
	}
	return l.run(op, clients, func(c int) []byte { return requests[rnds[c].IntN(len(requests))] }, nil)
}

// running is a load that is on.
type running struct {
	recording atomic.Bool
	stopped   atomic.Bool
	opened    atomic.Int64 // connections, or attempts that failed
	done      sync.WaitGroup
	conns     []connection
}

// connection is what one connection's clients measured.
type connection struct {
	mu   sync.Mutex
	hist histogram
	err  error
}

func (l *load) run(op string, clients int, message func(client int) []byte, enough func() bool) *running {
	r := &running{conns: make([]connection, min(clients, l.conns))}
	opening := make(chan struct{}, 100) // no more at once than servers accept
	stop := func() bool { return r.stopped.Load() || enough != nil && enough() }
	for i := range r.conns {
		var mine []int
		for c := i; c < clients; c += l.conns {
			mine = append(mine, c)
		}
		r.done.Add(1)
		go func() {
			defer r.done.Done()
			c := &r.conns[i]
			opening <- struct{}{}
			w, err := openWire(l.addresses[i%len(l.addresses)], methods[op], l.token, l.buffer)
			<-opening
			r.opened.Add(1)
			if err != nil {
				c.err = err
				return
			}
			defer w.conn.Close()
			w.failed = l.failed
			if l.hold != nil {
				<-l.hold
			}
			drive := w.drive
			if l.pace > 0 {
				drive = func(_ []int, message func(int) []byte, done func(*call), stop func() bool) error {
					return w.driveAt(l.pace/float64(len(r.conns)), func() []byte { return message(i) }, done, stop)
				}
			}
			err = drive(mine, message, func(call *call) {
				if (op == "get" || op == "sget") && call.bytes < l.value {
					c.err = errors.Join(c.err, fmt.Errorf("an answer to %s of %d bytes, the value alone has %d", op, call.bytes, l.value))
				}
				if r.recording.Load() {
					c.mu.Lock()
					c.hist.add(time.Since(call.begin))
					c.mu.Unlock()
				}
			}, stop)
			c.err = errors.Join(c.err, err)
		}()
	}
	return r
}

func (r *running) record() { r.recording.Store(true) }

// recorded ends the recording and returns what all clients together measured.
func (r *running) recorded() *histogram {
	r.recording.Store(false)
	var sum histogram
	for i := range r.conns {
		c := &r.conns[i]
		c.mu.Lock()
		sum.merge(&c.hist)
		c.mu.Unlock()
	}
	return &sum
}

// recordedAnew returns what was recorded, and goes on with nothing.
func (r *running) recordedAnew() *histogram {
	sum := r.recorded()
	for i := range r.conns {
		c := &r.conns[i]
		c.mu.Lock()
		c.hist = histogram{}
		c.mu.Unlock()
	}
	return sum
}

func (r *running) stop() error {
	r.stopped.Store(true)
	return r.wait()
}

func (r *running) wait() error {
	r.done.Wait()
	for i := range r.conns {
		if err := r.conns[i].err; err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nil
}
