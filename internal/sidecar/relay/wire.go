package relay

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/protofield"
)

// Response is a member's WatchResponse. The events are not decoded, so that a field that this
// release doesn't know is passed on.
type Response struct {
	Header                     pb.ResponseHeader
	ID                         int64
	Created, Canceled, partial bool
	Compacted                  int64
	Reason                     string
	events                     []event
}

// Numbers of WatchResponse's fields.
const (
	fieldHeader = iota + 1
	fieldID
	fieldCreated
	fieldCanceled
	fieldCompacted
	fieldReason
	fieldFragment
	fieldEvents = 11
)

var errMalformed = errors.New("relay: malformed watch response")

// Read decodes a response. It refers to b.
func Read(b []byte) (*Response, error) {
	r := new(Response)
	for f, err := range protofield.All(b) {
		if err != nil {
			return nil, errMalformed
		}
		if err := r.set(f); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Response) set(f protofield.Field) error {
	switch f.Type {
	case protowire.VarintType:
		switch f.Number {
		case fieldID:
			r.ID = int64(f.Varint)
		case fieldCreated:
			r.Created = f.Varint != 0
		case fieldCanceled:
			r.Canceled = f.Varint != 0
		case fieldCompacted:
			r.Compacted = int64(f.Varint)
		case fieldFragment:
			r.partial = f.Varint != 0
		}
	case protowire.BytesType:
		switch f.Number {
		case fieldHeader:
			return proto.Unmarshal(f.Bytes, &r.Header)
		case fieldReason:
			r.Reason = string(f.Bytes)
		case fieldEvents:
			rev, ok := modRevision(f.Bytes)
			if !ok {
				return errMalformed
			}
			r.events = append(r.events, event{rev, f.Whole})
		}
	}
	return nil
}

// modRevision is the revision of an event.
func modRevision(event []byte) (rev int64, ok bool) {
	const kv, mod = 2, 3
	of, ok := protofield.Find(event, kv, protowire.BytesType)
	if !ok {
		return 0, false
	}
	at, ok := protofield.Find(of.Bytes, mod, protowire.VarintType)
	return int64(at.Varint), ok
}

// answer is a response to a local client, without events.
type answer struct {
	id                         int64
	rev                        int64
	created, canceled, partial bool
	compacted                  int64
	reason                     string
}

// begin is the message up to its events, with room for those.
func (h *Hub) begin(a answer, room int) []byte {
	header := pb.ResponseHeader{ClusterId: h.cluster, MemberId: h.member, RaftTerm: h.term, Revision: a.rev}
	b := make([]byte, 0, 80+len(a.reason)+room)
	b = kvwire.AppendHeader(b, &header)
	b = appendNumber(b, fieldID, uint64(a.id))
	b = appendNumber(b, fieldCreated, protowire.EncodeBool(a.created))
	b = appendNumber(b, fieldCanceled, protowire.EncodeBool(a.canceled))
	b = appendNumber(b, fieldCompacted, uint64(a.compacted))
	if a.reason != "" {
		b = protowire.AppendTag(b, fieldReason, protowire.BytesType)
		b = protowire.AppendString(b, a.reason)
	}
	return appendNumber(b, fieldFragment, protowire.EncodeBool(a.partial))
}

func appendNumber(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

// message is one response with events.
func (h *Hub) message(a answer, events []event, bytes int) []byte {
	b := h.begin(a, bytes)
	for _, e := range events {
		b = append(b, e.field...)
	}
	return b
}

// overhead is more than a response needs beside its events.
const overhead = 128

// pieces are the responses for some events: several, each smaller than limit, if the client
// allows that. A single event is never split.
func (h *Hub) pieces(a answer, events []event, bytes, limit int) (all [][]byte) {
	if limit == 0 || len(events) < 2 || bytes+overhead < limit {
		return append(all, h.message(a, events, bytes))
	}
	for len(events) > 0 {
		n, size := 1, overhead+len(events[0].field)
		for n < len(events) && size+len(events[n].field) < limit {
			size += len(events[n].field)
			n++
		}
		a.partial = n < len(events)
		all = append(all, h.message(a, events[:n], size))
		events = events[n:]
	}
	return all
}

// Events is the number of events in a response.
func (r *Response) Events() int { return len(r.events) }
