package command

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sequenced is a write of a session: it takes effect exactly once even if it
// is sent again, and in the session's order.
type Sequenced struct {
	// Session is the session's id, which is its lease's.
	Session int64
	// Seq is the request's number in the session, from 1.
	Seq uint64
	// Pred is the number of the write before it that was sent to the same
	// partition and may not have taken effect yet: this one must not take
	// effect before that one. 0 means that everything before it has been
	// answered.
	Pred uint64
	// Answered is the number up to which the client has received the answers:
	// their results may be dropped.
	Answered uint64
	// Kind and Body are the command inside: a Put, DeleteRange, Txn or Extended.
	Kind Kind
	Body []byte
}

// The encoded write: kind (1 byte) | session (8 bytes) | seq | the distance from
// pred to seq, 0 for no pred | the distance from answered to seq | body. A session's
// id is random, so that a varint would be longer than its 8 bytes; the distances are
// short.
const sessionBytes = 8

var errNumbers = errors.New("its numbers contradict each other")

// AppendTo appends the encoded write to b.
func (q *Sequenced) AppendTo(b []byte) []byte {
	b = append(b, byte(q.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(q.Session))
	b = binary.AppendUvarint(b, q.Seq)
	back := uint64(0)
	if q.Pred != 0 {
		back = q.Seq - q.Pred
	}
	b = binary.AppendUvarint(b, back)
	b = binary.AppendUvarint(b, q.Seq-q.Answered)
	return append(b, q.Body...)
}

// DecodeSequenced reads the body of an InSession command. The Body of what it returns
// aliases b.
func DecodeSequenced(b []byte) (q Sequenced, err error) {
	if err := q.decode(b); err != nil {
		return Sequenced{}, fmt.Errorf("decode sequenced write of %d bytes: %w", len(b), err)
	}
	return q, nil
}

func (q *Sequenced) decode(b []byte) error {
	if len(b) < 1+sessionBytes {
		return errShort
	}
	q.Kind = Kind(b[0])
	q.Session = int64(binary.BigEndian.Uint64(b[1:]))
	b = b[1+sessionBytes:]
	var numbers [3]uint64 // seq, and the distances from pred and answered
	for i := range numbers {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return errShort
		}
		numbers[i], b = v, b[n:]
	}
	seq, back, behind := numbers[0], numbers[1], numbers[2]
	if seq == 0 || back >= seq || behind == 0 || behind > seq {
		return errNumbers
	}
	q.Seq, q.Answered = seq, seq-behind
	if back != 0 {
		q.Pred = seq - back
	}
	q.Body = b[:len(b):len(b)]
	return nil
}
