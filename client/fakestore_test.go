package client_test

import (
	"bytes"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
)

// The fake's store: without compaction, otherwise indistinguishable from a
// cluster's for a session.

// handle does one request. It needs the lock, as all below.
func (f *fake) handle(s *fakeSession, st *fakeStream, r *stoapb.Request) {
	switch r.Kind {
	case stoapb.Kind_WATCH, stoapb.Kind_RANGE, stoapb.Kind_TXN:
		if r.Seq < st.before && s.last > r.Seq && s.results[r.Seq] == nil {
			st.push(&stoapb.Reply{Seq: r.Seq, Code: uint32(codes.Unavailable), Message: fault.ReadOvertaken.Error()})
			return
		}
	}
	switch r.Kind {
	case stoapb.Kind_WATCH:
		f.watch(st, r)
		return
	case stoapb.Kind_CANCEL:
		c := new(pb.WatchCancelRequest)
		_ = proto.Unmarshal(r.Body, c)
		delete(st.watches, uint64(c.WatchId))
		st.push(f.reply(r.Seq, &pb.WatchResponse{Canceled: true}))
		return
	case stoapb.Kind_PROGRESS, stoapb.Kind_SYNC:
		f.asked = append(f.asked, r)
		st.push(&stoapb.Reply{Seq: r.Seq, Revision: f.revision})
		return
	case stoapb.Kind_CLOSE:
		f.revoke(s)
		st.push(&stoapb.Reply{Seq: r.Seq, Revision: f.revision, Message: "closed"})
		return
	case stoapb.Kind_RANGE:
		f.asked = append(f.asked, r)
		q := new(pb.RangeRequest)
		_ = proto.Unmarshal(r.Body, q)
		st.push(f.reply(r.Seq, f.get(q)))
		return
	}
	if r.Seq <= s.last {
		if old := s.results[r.Seq]; old != nil {
			st.push(old)
			return
		}
		st.push(&stoapb.Reply{Seq: r.Seq, Code: uint32(codes.FailedPrecondition), Message: "forgotten"})
		return
	}
	revision := f.revision
	answer := f.write(s, st, r)
	if f.revision > revision { // a transaction of reads is one
		s.last, s.results[r.Seq] = r.Seq, answer
	}
	st.push(answer)
}

func (f *fake) reply(seq uint64, m proto.Message) *stoapb.Reply {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &stoapb.Reply{Seq: seq, Body: body, Revision: f.revision}
}

func (f *fake) write(s *fakeSession, st *fakeStream, r *stoapb.Request) *stoapb.Reply {
	f.revision++
	var answer proto.Message
	before := len(f.history)
	key := ""
	switch r.Kind {
	case stoapb.Kind_PUT:
		q := new(pb.PutRequest)
		_ = proto.Unmarshal(r.Body, q)
		if key = string(q.Key); key == "refuse" {
			f.revision--
			return &stoapb.Reply{Seq: r.Seq, Code: uint32(codes.InvalidArgument), Message: "etcdserver: key is not provided"}
		}
		answer = f.put(q)
	case stoapb.Kind_DELETE_RANGE:
		q := new(pb.DeleteRangeRequest)
		_ = proto.Unmarshal(r.Body, q)
		key = string(q.Key)
		answer = f.delete(q)
	case stoapb.Kind_TXN:
		q := new(pb.TxnRequest)
		_ = proto.Unmarshal(r.Body, q)
		answer = f.txn(q)
	}
	if len(f.history) == before {
		f.revision--
	}
	f.writes = append(f.writes, write{s.id, r.Seq, key})
	f.publish(f.history[before:])
	return f.reply(r.Seq, answer)
}

func (f *fake) put(q *pb.PutRequest) *pb.PutResponse {
	old := f.keys[string(q.Key)]
	kv := &mvccpb.KeyValue{Key: q.Key, Value: q.Value, Lease: q.Lease, ModRevision: f.revision, CreateRevision: f.revision, Version: 1}
	if old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	f.keys[string(q.Key)] = kv
	f.history = append(f.history, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv})
	answer := &pb.PutResponse{}
	if q.PrevKv {
		answer.PrevKv = old
	}
	return answer
}

func within(key, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(key, from)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(key, from) >= 0
	}
	return bytes.Compare(key, from) >= 0 && bytes.Compare(key, end) < 0
}

func (f *fake) find(from, end []byte) (kvs []*mvccpb.KeyValue) {
	for _, kv := range f.keys {
		if within(kv.Key, from, end) {
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return kvs
}

func (f *fake) get(q *pb.RangeRequest) *pb.RangeResponse {
	kvs := f.find(q.Key, q.RangeEnd)
	answer := &pb.RangeResponse{Kvs: kvs, Count: int64(len(kvs))}
	if q.Limit > 0 && int64(len(kvs)) > q.Limit {
		answer.Kvs, answer.More = kvs[:q.Limit], true
	}
	return answer
}

func (f *fake) delete(q *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	kvs := f.find(q.Key, q.RangeEnd)
	for _, kv := range kvs {
		delete(f.keys, string(kv.Key))
		f.history = append(f.history, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: f.revision}})
	}
	answer := &pb.DeleteRangeResponse{Deleted: int64(len(kvs))}
	if q.PrevKv {
		answer.PrevKvs = kvs
	}
	return answer
}

func (f *fake) txn(q *pb.TxnRequest) *pb.TxnResponse {
	answer := &pb.TxnResponse{Succeeded: true}
	for _, c := range q.Compare {
		version := int64(0)
		if kv := f.keys[string(c.Key)]; kv != nil {
			version = kv.Version
		}
		answer.Succeeded = answer.Succeeded && version == c.GetVersion()
	}
	ops := q.Success
	if !answer.Succeeded {
		ops = q.Failure
	}
	for _, op := range ops {
		out := &pb.ResponseOp{}
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: f.put(o.RequestPut)}
		case *pb.RequestOp_RequestRange:
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: f.get(o.RequestRange)}
		case *pb.RequestOp_RequestDeleteRange:
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: f.delete(o.RequestDeleteRange)}
		}
		answer.Responses = append(answer.Responses, out)
	}
	return answer
}

func (f *fake) revoke(s *fakeSession) {
	f.revision++
	before := len(f.history)
	for key, kv := range f.keys {
		if kv.Lease == s.id {
			delete(f.keys, key)
			f.history = append(f.history, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: f.revision}})
		}
	}
	delete(f.sessions, s.id)
	f.publish(f.history[before:])
}

func (f *fake) watch(st *fakeStream, r *stoapb.Request) {
	c := new(pb.WatchCreateRequest)
	_ = proto.Unmarshal(r.Body, c)
	if string(c.Key) == "compacted" {
		st.push(f.reply(r.Seq, &pb.WatchResponse{Created: true, Canceled: true, CompactRevision: 5}))
		return
	}
	if string(c.Key) == "extended" { // an extension answers, and makes the client wait for another key
		c.Key = []byte("behind")
		kv := &mvccpb.KeyValue{Key: c.Key, ModRevision: f.revision - 1, Version: 1}
		st.push(f.reply(r.Seq, &pb.WatchResponse{
			Created: true, Header: &pb.ResponseHeader{Revision: kv.ModRevision - 1},
			Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: c.Key}}},
		}))
		f.event(st, r.Seq, []*mvccpb.Event{{Kv: kv}})
		st.watches[r.Seq] = c
		return
	}
	st.push(f.reply(r.Seq, &pb.WatchResponse{Created: true}))
	if c.StartRevision == 0 {
		st.watches[r.Seq] = c
		return
	}
	f.resume(st, []*stoapb.Request{r})
}

// resume opens watches in the past, whose events come in one order.
func (f *fake) resume(st *fakeStream, watches []*stoapb.Request) {
	for _, r := range watches {
		c := new(pb.WatchCreateRequest)
		_ = proto.Unmarshal(r.Body, c)
		st.watches[r.Seq] = c
	}
	for i, e := range f.history {
		for _, r := range watches {
			c := st.watches[r.Seq]
			if e.Kv.ModRevision >= c.StartRevision && within(e.Kv.Key, c.Key, c.RangeEnd) {
				f.event(st, r.Seq, f.history[i:i+1])
			}
		}
	}
}

// publish gives the events of one revision to all watches, before any reply that
// reflects them.
func (f *fake) publish(events []*mvccpb.Event) {
	for _, s := range f.sessions {
		if s.stream == nil || s.stream.dead != nil {
			continue
		}
		for _, seq := range sorted(s.stream.watches) {
			c := s.stream.watches[seq]
			var some []*mvccpb.Event
			for _, e := range events {
				if within(e.Kv.Key, c.Key, c.RangeEnd) {
					some = append(some, e)
				}
			}
			if len(some) > 0 {
				f.event(s.stream, seq, some)
			}
		}
	}
}

func sorted[V any](m map[uint64]V) (keys []uint64) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (f *fake) event(st *fakeStream, seq uint64, events []*mvccpb.Event) {
	r := f.reply(seq, &pb.WatchResponse{Events: events})
	r.Event = true
	st.push(r)
}
