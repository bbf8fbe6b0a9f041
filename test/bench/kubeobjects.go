package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/protofield"
)

const (
	txnPath   = "/etcdserverpb.KV/Txn"
	rangePath = "/etcdserverpb.KV/Range"
	grantPath = "/etcdserverpb.Lease/LeaseGrant"
)

// kubeObject is one object in an API server's cache.
type kubeObject struct {
	key       string
	rev, last int64 // its revision, and the one before
	busy      bool  // a write of it is not answered
}

// kubeSet are the objects of one resource that one API server writes, oldest first, and its
// connection for them. It belongs to the goroutine that runs the connection.
type kubeSet struct {
	*kubeConn
	kind    kubeKind
	prefix  string
	name    func(number int) string
	size    func() int // of a value
	rnd     *rand.Rand
	objects []*kubeObject
	made    int // in all
	turn    int
	value   []byte
	list    kubeList
	leases  kubeLeases
}

// valued is a value of the resource with the time at which its write was due.
func (s *kubeSet) valued(due time.Time) []byte {
	n := s.size()
	for len(s.value) < n {
		s.value = append(s.value, byte('a'+s.rnd.IntN(26)))
	}
	stamp(s.value, due)
	return s.value[:n]
}

// ifUnchanged is a transaction as the storage layer sends it: what is to be done, if the object's
// revision is that which the API server knows.
func ifUnchanged(key []byte, rev int64, do *pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}},
		Success: []*pb.RequestOp{do},
	}
}

// orGet has the transaction answer with the object if that has changed.
func orGet(t *pb.TxnRequest, key []byte) *pb.TxnRequest {
	t.Failure = []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}}
	return t
}

func put(key, value []byte, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: value, Lease: lease}}}
}

func remove(key []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key}}}
}

// create makes a new object: put, if there is none.
func (s *kubeSet) create(due time.Time, lease int64) error {
	o := &kubeObject{key: s.prefix + s.name(s.made)}
	s.made++
	key := []byte(o.key)
	return s.call(s.kind, txnPath, ifUnchanged(key, 0, put(key, s.valued(due), lease)), due, func(b []byte) error {
		r, err := txnAnswer(b)
		if err != nil {
			return err
		}
		if !r.Succeeded {
			return fmt.Errorf("%s is there already", o.key)
		}
		o.rev = r.Header.Revision
		if lease == 0 { // an event is never written again
			s.objects = append(s.objects, o)
		}
		return nil
	})
}

// update writes an object; with the revision before the last if it is stale, as one with a cache
// that is behind does, and then again with the revision that the answer says.
func (s *kubeSet) update(o *kubeObject, due time.Time, stale bool) error {
	if o.busy {
		return nil
	}
	o.busy = true
	rev, kind := o.rev, s.kind
	if stale = stale && o.last != 0; stale {
		rev, kind = o.last, notRecorded
	}
	key := []byte(o.key)
	return s.call(kind, txnPath, orGet(ifUnchanged(key, rev, put(key, s.valued(due), 0)), key), due, func(b []byte) error {
		r, err := txnAnswer(b)
		if err != nil {
			return err
		}
		o.busy = false
		switch {
		case stale == r.Succeeded:
			return fmt.Errorf("an update of %s at revision %d instead of %d: succeeded is %v", o.key, rev, o.rev, r.Succeeded)
		case stale:
			kvs := r.Responses[0].GetResponseRange().GetKvs()
			if len(kvs) != 1 || kvs[0].ModRevision != o.rev {
				return fmt.Errorf("a failed update of %s doesn't bring it as it is", o.key)
			}
			return s.update(o, due, false)
		}
		o.last, o.rev = o.rev, r.Header.Revision
		return nil
	})
}

// removeOldest deletes the oldest object.
func (s *kubeSet) removeOldest(due time.Time) error {
	if len(s.objects) == 0 || s.objects[0].busy {
		return nil
	}
	o := s.objects[0]
	s.objects = s.objects[1:]
	key := []byte(o.key)
	return s.call(s.kind, txnPath, orGet(ifUnchanged(key, o.rev, remove(key)), key), due, func(b []byte) error {
		r, err := txnAnswer(b)
		if err == nil && !r.Succeeded {
			err = fmt.Errorf("%s has changed before it was deleted", o.key)
		}
		return err
	})
}

func txnAnswer(b []byte) (*pb.TxnResponse, error) {
	var r pb.TxnResponse
	return &r, proto.Unmarshal(b, &r)
}

// get reads an object.
func (s *kubeSet) get(o *kubeObject, due time.Time) error {
	return s.call(objectGets, rangePath, &pb.RangeRequest{Key: []byte(o.key), Limit: 1}, due, func(b []byte) error {
		_, err := readPage(b)
		return err
	})
}

// next is the next object in turn of the first n.
func (s *kubeSet) next(n int) *kubeObject {
	s.turn++
	return s.objects[s.turn%min(n, len(s.objects))]
}

// newest is one of the n newest objects.
func (s *kubeSet) newest(n int) *kubeObject {
	return s.objects[len(s.objects)-1-s.rnd.IntN(min(n, len(s.objects)))]
}

// grow creates objects until there are n. It is what run sends; done is called when there are.
func (s *kubeSet) grow(n int, done func()) sending {
	return func(now time.Time) (time.Time, error) {
		for len(s.open) < growing && len(s.objects)+len(s.open) < n {
			if err := s.create(now, 0); err != nil {
				return now, err
			}
		}
		if len(s.objects) >= n && done != nil {
			done()
			done = nil
		}
		return now.Add(10 * time.Millisecond), nil
	}
}

// growing is how many objects are created at once.
const growing = 64

// kubeList is a list in pages, all of them at the revision of the first.
type kubeList struct {
	from string // where the next page begins; "": a new list
	rev  int64
	out  bool // a page is not answered
}

// page reads the next page of the list, and behind the last the first of a new one.
func (s *kubeSet) page(due time.Time) error {
	l := &s.list
	if l.out {
		return nil
	}
	if l.from == "" {
		l.from, l.rev = s.prefix, 0
	}
	l.out = true
	request := &pb.RangeRequest{Key: []byte(l.from), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(s.prefix)), Limit: pageLimit, Revision: l.rev}
	return s.call(listPages, rangePath, request, due, func(b []byte) error {
		p, err := readPage(b)
		l.out, l.from = false, ""
		if p.more {
			l.from, l.rev = p.last+"\x00", max(l.rev, p.rev)
		}
		return err
	})
}

// kubePage is what matters of a range.
type kubePage struct {
	rev  int64
	last string // key
	more bool
}

// readPage looks at the answer to a range that is not empty.
func readPage(b []byte) (p kubePage, err error) {
	var last []byte
	for f, err := range protofield.All(b) {
		if err != nil {
			return p, err
		}
		switch f.Number {
		case 1: // header
			if p.rev, err = varintOf(f.Bytes, 3); err != nil {
				return p, err
			}
		case 2: // kvs
			last = f.Bytes
		case 3:
			p.more = f.Varint == 1
		}
	}
	for f, err := range protofield.All(last) {
		if err != nil {
			return p, err
		}
		if f.Number == 1 {
			p.last = string(f.Bytes)
		}
	}
	if p.last == "" {
		return p, errors.New("a range of objects that are there is empty")
	}
	return p, nil
}

func varintOf(message []byte, number int) (v int64, err error) {
	for f, err := range protofield.All(message) {
		if err != nil {
			return 0, err
		}
		if int(f.Number) == number {
			v = int64(f.Varint)
		}
	}
	return v, nil
}

// kubeLeases are the leases of events: one serves many of them.
type kubeLeases struct {
	lease    int64
	attached int
	since    time.Time
	waiting  []time.Time // when events were due that wait for the next lease
}

// createLeased makes an object under a lease, and a lease first when one is needed.
func (s *kubeSet) createLeased(due time.Time) error {
	l := &s.leases
	if l.lease != 0 && l.attached < perLease && time.Since(l.since) < leaseReuse {
		l.attached++
		return s.create(due, l.lease)
	}
	l.waiting = append(l.waiting, due)
	if len(l.waiting) > 1 {
		return nil
	}
	return s.call(notRecorded, grantPath, &pb.LeaseGrantRequest{TTL: int64(eventTTL.Seconds())}, due, func(b []byte) error {
		var r pb.LeaseGrantResponse
		if err := proto.Unmarshal(b, &r); err != nil {
			return err
		}
		l.lease, l.attached, l.since = r.ID, 0, time.Now()
		waiting := l.waiting
		l.waiting = nil
		for _, due := range waiting {
			if err := s.createLeased(due); err != nil {
				return err
			}
		}
		return nil
	})
}
