package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/protofield"
)

// kubeKind is a kind of request, or of event: a row of the report.
type kubeKind int

const (
	notRecorded kubeKind = iota - 1
	leaseUpdates
	nodeUpdates
	podWrites
	eventCreations
	objectGets
	listPages
	progressRequests
	eventLags
	sendDelays // how late the load generator sends
	kubeKinds
)

func (k kubeKind) String() string {
	return [...]string{"update of a lease", "update of a node", "creation, update, deletion of a pod", "creation of an event",
		"get of a pod", "page of a list of pods", "watch: progress", "watch: event", "the load generator is late by"}[k]
}

// kubeConn is an API server's connection for the objects of one resource: its unary calls, and
// its watch. One goroutine runs it.
type kubeConn struct {
	link  *link
	open  map[uint32]*kubeCall // by stream
	again []*kubeCall          // refused, the first that is to be sent again first
	watch *stream
	asked time.Time // when progress was requested; zero: the last request is answered

	mu        sync.Mutex
	recording bool
	hist      kubeTimes
}

// kubeCall is a unary call that is not answered.
type kubeCall struct {
	kind    kubeKind
	begin   time.Time
	answer  func(message []byte) error
	method  string
	message []byte
	due     time.Time // when it is sent again, if it was refused
}

// refusedFor is how long a call waits that a server has refused ("too many requests").
const refusedFor = 100 * time.Millisecond

func openKube(address string) (*kubeConn, error) {
	l, err := openLink(address)
	if err != nil {
		return nil, err
	}
	return &kubeConn{link: l, open: map[uint32]*kubeCall{}}, nil
}

// call sends a request. Its time counts from when it was due.
func (c *kubeConn) call(kind kubeKind, method string, m proto.Message, due time.Time, answer func([]byte) error) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, prefix), m)
	if err != nil {
		return err
	}
	if kind != listPages { // which is bounded by itself
		c.record(sendDelays, time.Since(due))
	}
	return c.send(&kubeCall{kind: kind, begin: due, answer: answer, method: method, message: seal(b)})
}

func (c *kubeConn) send(call *kubeCall) error {
	s, err := c.link.call(call.method, call.message)
	if err == nil {
		c.open[s.id] = call
	}
	return err
}

// sendAgain sends what was refused a while ago.
func (c *kubeConn) sendAgain(now time.Time) error {
	for len(c.again) > 0 && !now.Before(c.again[0].due) {
		call := c.again[0]
		c.again = c.again[1:]
		if err := c.send(call); err != nil {
			return err
		}
	}
	return nil
}

// follow watches a resource as the API server's cache does.
func (c *kubeConn) follow(keys string) error {
	s, err := c.link.open(watchPath, hpack.HeaderField{Name: "hasleader", Value: "true"})
	if err != nil {
		return err
	}
	c.watch = s
	return c.ask(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(keys), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(keys)), PrevKv: true, ProgressNotify: true}}})
}

// progress asks how far the watch is, unless the last such request is not answered yet.
func (c *kubeConn) progress(due time.Time) error {
	if !c.asked.IsZero() {
		return nil
	}
	c.asked = due
	return c.ask(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (c *kubeConn) ask(m *pb.WatchRequest) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, prefix), m)
	if err != nil {
		return err
	}
	return c.link.send(c.watch, seal(b))
}

// sending sends what is due, and says when to call it next; it may be called earlier.
type sending func(now time.Time) (next time.Time, err error)

// run sends, and takes what comes, until it is stopped; then it waits for what is not answered.
func (c *kubeConn) run(send sending, stop func() bool) error {
	var drained time.Time
	for {
		now := time.Now()
		next := now.Add(10 * time.Millisecond)
		if err := c.sendAgain(now); err != nil {
			return err
		}
		switch {
		case !stop():
			var err error
			if next, err = send(now); err != nil {
				return err
			}
		case len(c.open)+len(c.again) == 0:
			return c.link.flush()
		case drained.IsZero():
			drained = now.Add(drainTimeout)
		case now.After(drained):
			return fmt.Errorf("%d requests were not answered within %v", len(c.open)+len(c.again), drainTimeout)
		}
		if err := c.link.flush(); err != nil {
			return err
		}
		if err := c.receiveUntil(next); err != nil {
			return err
		}
	}
}

// receiveUntil takes what comes first, at most until the given time.
func (c *kubeConn) receiveUntil(until time.Time) error {
	ready, err := c.link.await(until)
	if err != nil || !ready {
		return err
	}
	for first := true; first || c.link.pending(); first = false {
		s, err := c.link.receive()
		switch {
		case err != nil:
			return err
		case s == nil:
		case s == c.watch:
			err = errors.Join(s.take(c.watched), s.ended)
		case s.ended != nil:
			err = c.answered(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *kubeConn) answered(s *stream) error {
	call := c.open[s.id]
	delete(c.open, s.id)
	switch {
	case call != nil && s.refused:
		call.due = time.Now().Add(refusedFor)
		c.again = append(c.again, call)
		return nil
	case call == nil || s.ended != errEnded:
		return s.ended
	}
	c.record(call.kind, time.Since(call.begin))
	return s.take(call.answer)
}

func (c *kubeConn) record(kind kubeKind, took time.Duration) {
	if kind == notRecorded {
		return
	}
	c.mu.Lock()
	if c.recording {
		c.hist[kind].add(took)
	}
	c.mu.Unlock()
}

// began is what times in values count from: those that a watch brings are compared with the clock
// by which they were written.
var began = time.Now()

// stampAt is where a value has the time at which its write was due: behind the mark of
// Kubernetes' encoding.
const stampAt = 4

func stamp(value []byte, due time.Time) {
	copy(value, "k8s\x00")
	binary.BigEndian.PutUint64(value[stampAt:], uint64(due.Sub(began)))
}

// The fields of an event of a WatchResponse, and of its key.
const (
	eventKey = 2
	keyValue = 5
)

// watched looks at a response of the watch: how late each event is, or that it reports progress.
func (c *kubeConn) watched(response []byte) error {
	var created bool
	var events int
	for f, err := range protofield.All(response) {
		if err != nil {
			return err
		}
		switch f.Number {
		case watchCreated:
			created = true
		case watchCanceled:
			return errors.New("the server has cancelled a watch")
		case watchEvents:
			events++
			if err := c.event(f.Bytes); err != nil {
				return err
			}
		}
	}
	if !created && events == 0 && !c.asked.IsZero() {
		c.record(progressRequests, time.Since(c.asked))
		c.asked = time.Time{}
	}
	return nil
}

func (c *kubeConn) event(event []byte) error {
	for f, err := range protofield.All(event) {
		if err != nil {
			return err
		}
		if f.Number != eventKey {
			continue
		}
		for f, err := range protofield.All(f.Bytes) {
			if err != nil {
				return err
			}
			if f.Number == keyValue && len(f.Bytes) >= stampAt+8 {
				c.record(eventLags, time.Since(began)-time.Duration(binary.BigEndian.Uint64(f.Bytes[stampAt:])))
			}
		}
	}
	return nil
}
