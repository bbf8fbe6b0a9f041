package engine

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// arrival is a received reply, or the events of a watch. Its body aliases the
// batch.
type arrival struct {
	seq      uint64
	event    bool
	code     codes.Code
	message  string
	body     []byte
	revision int64
	from     *origin

	call  call   // the request that it answers
	watch *Watch // whose events it has; nil if that one is closed
}

// origin has the header fields that are constant in a stream.
type origin struct {
	cluster, member, term uint64
}

func (a *arrival) header() *pb.ResponseHeader {
	h := new(pb.ResponseHeader)
	a.fillHeader(h)
	return h
}

func (a *arrival) fillHeader(h *pb.ResponseHeader) {
	h.ClusterId, h.MemberId, h.RaftTerm, h.Revision = a.from.cluster, a.from.member, a.from.term, a.revision
}

// err is the reply's error: the same that etcd's client returns for it.
func (a *arrival) err() error {
	switch {
	case a.code == codes.OK:
		return nil
	case a.code == codes.Unavailable && a.message == overtaken:
		return ErrOvertaken
	}
	return rpctypes.Error(status.Error(a.code, a.message))
}

// overtaken is the servers' error for a read that can't be answered in its
// place.
const overtaken = "read was sent again after later writes of its session took effect"

var errMalformed = errors.New("client: the server sent what can't be read")

// A fieldFunc takes one field: v if it is a varint, b if it is bytes.
type fieldFunc func(field protowire.Number, v uint64, b []byte) error

// eachField walks over the fields of a message, without those of other types.
func eachField(data []byte, take fieldFunc) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errMalformed
		}
		data = data[n:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(data)
		default:
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return errMalformed
			}
			data = data[n:]
			continue
		}
		if n < 0 {
			return errMalformed
		}
		data = data[n:]
		if err := take(field, v, b); err != nil {
			return err
		}
	}
	return nil
}

// serverBatch is a ServerBatch, with its replies.
type serverBatch struct {
	opened   *stoapb.Opened
	atlas    *stoapb.PartitionMap
	arrivals []arrival
}

// read takes a batch apart. The arrivals point into data.
func (s *serverBatch) read(data []byte, from *origin) error {
	s.opened, s.atlas, s.arrivals = nil, nil, s.arrivals[:0]
	return eachField(data, func(field protowire.Number, _ uint64, b []byte) error {
		switch field {
		case 1:
			s.opened = new(stoapb.Opened)
			return malformed(proto.Unmarshal(b, s.opened))
		case 2:
			s.arrivals = append(s.arrivals, arrival{from: from})
			return s.arrivals[len(s.arrivals)-1].read(b)
		case 3:
			s.atlas = new(stoapb.PartitionMap)
			return malformed(proto.Unmarshal(b, s.atlas))
		}
		return nil
	})
}

func malformed(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

func (a *arrival) read(data []byte) error {
	return eachField(data, func(field protowire.Number, v uint64, b []byte) error {
		switch field {
		case 1:
			a.seq = v
		case 2:
			a.event = v != 0
		case 3:
			a.code = codes.Code(v)
		case 4:
			a.message = string(b)
		case 5:
			a.body = b
		case 6:
			a.revision = int64(v)
		}
		return nil
	})
}

// readKeyValue reads a KeyValue whose bytes go on pointing into data.
func readKeyValue(data []byte, kv *mvccpb.KeyValue) error {
	return eachField(data, func(field protowire.Number, v uint64, b []byte) error {
		switch field {
		case 1:
			kv.Key = b
		case 2:
			kv.CreateRevision = int64(v)
		case 3:
			kv.ModRevision = int64(v)
		case 4:
			kv.Version = int64(v)
		case 5:
			kv.Value = b
		case 6:
			kv.Lease = int64(v)
		}
		return nil
	})
}

// readKeyValues reads the KeyValues that a message has under one field, into
// one if there is one, and passes the other fields to rest. Their bytes are
// copied: the batch's memory is reused.
func readKeyValues(data []byte, under protowire.Number, one *keyValue, rest fieldFunc) ([]*mvccpb.KeyValue, error) {
	count := 0
	var only []byte
	err := eachField(data, func(field protowire.Number, v uint64, b []byte) error {
		if field == under {
			only = b
			count++
			return nil
		}
		return rest(field, v, b)
	})
	if err != nil || count == 0 {
		return nil, err
	}
	if count == 1 {
		if one == nil {
			one = new(keyValue)
		}
		one.pointers[0] = &one.value
		return one.pointers[:], readKeyValue(bytes.Clone(only), &one.value)
	}
	pointers, values := make([]*mvccpb.KeyValue, 0, count), make([]mvccpb.KeyValue, count)
	err = eachField(bytes.Clone(data), func(field protowire.Number, _ uint64, b []byte) error {
		if field != under {
			return nil
		}
		kv := &values[len(pointers)]
		pointers = append(pointers, kv)
		return readKeyValue(b, kv)
	})
	return pointers, err
}

// keyValue is room for the one KeyValue that most answers have.
type keyValue struct {
	value    mvccpb.KeyValue
	pointers [1]*mvccpb.KeyValue
}
