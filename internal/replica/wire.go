package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The bodies of calls and replies are sequences of uvarints, followed by a
// marshalled message of etcd's where there is one.

var errShort = errors.New("replica: message ends too early")

const (
	flagSystem = 1 << iota
	flagSession
	flagUser // the command's user is named
)

func encodeWrite(w *Write) []byte {
	b := make([]byte, 0, len(w.Command.Body)+12)
	flags := uint64(0)
	if w.System {
		flags |= flagSystem
	}
	if w.Session {
		flags |= flagSession
	}
	if w.Command.User != 0 {
		flags |= flagUser
	}
	b = binary.AppendUvarint(b, uint64(w.Command.Kind))
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, uint64(w.Parts))
	b = binary.AppendUvarint(b, uint64(w.Home))
	if w.Command.User != 0 {
		b = binary.AppendUvarint(b, w.Command.User)
	}
	return append(b, w.Command.Body...)
}

func decodeWrite(b []byte, all placement.Set) (*Write, error) {
	n, b, err := uvarints(b, 4)
	if err != nil {
		return nil, err
	}
	parts, session := placement.Set(n[2]), n[1]&flagSession != 0
	var user [4]uint64
	if n[1]&flagUser != 0 {
		if user, b, err = uvarints(b, 1); err != nil {
			return nil, err
		}
	}
	if parts&^all != 0 { // routed before the number of partitions changed
		return nil, fault.Moved
	}
	if n[0] > 127 || parts == 0 || session && (n[3] > 63 || !parts.Has(int(n[3]))) {
		return nil, fmt.Errorf("replica: write of kind %d to partitions %v through %d", n[0], parts, n[3])
	}
	return &Write{
		Command: command.Command{Kind: command.Kind(n[0]), User: user[0], Body: b},
		System:  n[1]&flagSystem != 0,
		Session: session,
		Parts:   parts,
		Home:    int32(n[3]),
	}, nil
}

func encodeOutcome(out Outcome) ([]byte, error) {
	if out.Err != nil {
		return nil, out.Err
	}
	place := func(size int) []byte {
		b := binary.AppendUvarint(make([]byte, 0, 3*binary.MaxVarintLen64+size), uint64(out.Group))
		b = binary.AppendUvarint(b, out.Index)
		return binary.AppendUvarint(b, uint64(out.Rev))
	}
	switch r := out.Response.(type) { // by far the most answers
	case *pb.PutResponse:
		if r.PrevKv == nil {
			return kvwire.AppendHeader(place(kvwire.SizeHeader(r.Header)), r.Header), nil
		}
	case *pb.TxnResponse:
		if a, ok := kvwire.BriefAnswer(r); ok {
			return a.AppendTo(place(a.Size())), nil
		}
	}
	return proto.MarshalOptions{}.MarshalAppend(place(0), out.Response)
}

func decodeOutcome(k command.Kind, b []byte) (Outcome, error) {
	n, b, err := uvarints(b, 3)
	if err != nil {
		return Outcome{}, err
	}
	if n[0] > noneOfTheSender {
		return Outcome{}, fmt.Errorf("replica: outcome in group %d", n[0])
	}
	out := Outcome{Group: int(n[0]), Index: n[1], Result: apply.Result{Rev: int64(n[2])}}
	switch k {
	case command.Put:
		if put := kvwire.ReadPutAnswer(b); put != nil {
			out.Response = put
			return out, nil
		}
	case command.Txn:
		if txn := kvwire.ReadTxnAnswer(b); txn != nil {
			out.Response = txn
			return out, nil
		}
	}
	out.Response = apply.NewResponse(k)
	if out.Response == nil {
		return Outcome{}, fmt.Errorf("replica: no response is known for %v", k)
	}
	if err := proto.Unmarshal(b, out.Response); err != nil {
		return Outcome{}, fmt.Errorf("replica: reading the leader's response to %v: %w", k, err)
	}
	return out, nil
}

// A question for a read point: the partitions, and the terms that the asker knows.
func encodeQuestion(parts placement.Set, known []uint64) []byte {
	b := binary.AppendUvarint(nil, uint64(parts))
	for _, term := range known {
		b = binary.AppendUvarint(b, term)
	}
	return b
}

func decodeQuestion(b []byte, all placement.Set) (parts placement.Set, known []uint64, err error) {
	n, b, err := uvarints(b, 1)
	if err != nil {
		return 0, nil, err
	}
	if parts = placement.Set(n[0]); parts&^all != 0 { // routed before the number of partitions changed
		return 0, nil, fault.Moved
	}
	if parts == 0 {
		return 0, nil, fmt.Errorf("replica: read point of partitions %v", parts)
	}
	for len(b) > 0 {
		if n, b, err = uvarints(b, 1); err != nil {
			return 0, nil, err
		}
		known = append(known, n[0])
	}
	return parts, known, nil
}

func encodePoints(points []Closed) []byte {
	var b []byte
	for _, m := range points {
		b = binary.AppendUvarint(b, uint64(m.Group))
		b = binary.AppendUvarint(b, m.Index)
		b = binary.AppendUvarint(b, uint64(m.Revision))
	}
	return b
}

func decodePoints(b []byte, parts placement.Set) ([]Closed, error) {
	var points []Closed
	for range parts.Len() {
		n, rest, err := uvarints(b, 3)
		if err != nil {
			return nil, err
		}
		if n[0] >= placement.MaxPartitions || !parts.Has(int(n[0])) {
			return nil, fmt.Errorf("replica: read point of partition %d was not asked for", n[0])
		}
		points = append(points, Closed{Group: int(n[0]), Index: n[1], Revision: int64(n[2])})
		b = rest
	}
	return points, nil
}

func uvarints(b []byte, count int) ([4]uint64, []byte, error) {
	var out [4]uint64
	for i := range count {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return out, nil, errShort
		}
		out[i], b = v, b[n:]
	}
	return out, b, nil
}
