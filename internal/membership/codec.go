package membership

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// The encoded change:
//
//	version (1 byte) | op (1 byte) | the most learners, unsigned varint | Member, marshalled
//
// The encoded step, in the context of Raft's change of a configuration:
//
//	version (1 byte) | kind (1 byte) | id | number | generation, unsigned varints
const encoding = 1

// mostLearners is how many learners an encoded change can allow: more than there are members.
const mostLearners = 1 << 16

// Encode returns the encoded change. A bound on learners that can't be encoded, a negative one, say, becomes the next that can.
func (c *Change) Encode() ([]byte, error) {
	b := binary.AppendUvarint([]byte{encoding, byte(c.Op)}, uint64(min(max(c.MaxLearners, 0), mostLearners)))
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, c.Member)
}

var errShort = errors.New("ends early")

// Decode reads an encoded change.
func Decode(b []byte) (c Change, err error) {
	if b, err = head(b, byte(Reset)); err != nil {
		return c, fmt.Errorf("decode change of members: %w", err)
	}
	most, n := binary.Uvarint(b[1:])
	if n <= 0 || most > mostLearners {
		return c, fmt.Errorf("decode change of members: %w", errShort)
	}
	c = Change{Op: Op(b[0]), MaxLearners: int(most), Member: new(pb.Member)}
	if err := proto.Unmarshal(b[1+n:], c.Member); err != nil {
		return c, fmt.Errorf("decode change of members: %w", err)
	}
	return c, nil
}

// head checks the version and the byte behind it.
func head(b []byte, most byte) (rest []byte, err error) {
	switch {
	case len(b) < 2:
		return nil, errShort
	case b[0] != encoding:
		return nil, fmt.Errorf("version %d, this program knows %d", b[0], encoding)
	case b[1] == 0 || b[1] > most:
		return nil, fmt.Errorf("unknown type %d", b[1])
	}
	return b[1:], nil
}

// Encode returns the encoded step.
func (s *Step) Encode() []byte {
	b := []byte{encoding, byte(s.Kind)}
	for _, v := range []uint64{s.ID, s.Number, s.Generation} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// DecodeStep reads an encoded step.
func DecodeStep(b []byte) (s Step, err error) {
	if b, err = head(b, byte(RemoveServer)); err != nil {
		return s, fmt.Errorf("decode step of a configuration: %w", err)
	}
	s.Kind, b = StepKind(b[0]), b[1:]
	for _, v := range []*uint64{&s.ID, &s.Number, &s.Generation} {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return s, fmt.Errorf("decode step of a configuration: %w", errShort)
		}
		*v, b = x, b[n:]
	}
	if len(b) > 0 {
		return s, fmt.Errorf("decode step of a configuration: %d bytes behind it", len(b))
	}
	return s, nil
}
