package command

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// The encoded entry; numbers are unsigned varints unless a width is given:
//
//	format (1 byte) | stamp | parts | origin (8 bytes) | seq | commands
//	then for each command: kind (1 byte) | user, if the kind has the bit withUser | length | body
//
// The format is the lowest level that a program must know to execute all commands. So a
// program that is too old for one stops there and does not pass over it.

// The origin is random, so that a varint would be longer than its 8 bytes.
const originBytes = 8

// withUser is set in the byte of the kind if a user follows. Kinds are below it.
const withUser = 0x80

// maxStamp leaves room for arithmetic on stamps: writes never reach it, only
// a damaged log could.
const maxStamp = math.MaxInt64 / 2

// HighestStart is the highest revision that a cluster may begin with: writes won't get from there to the first that
// no log can have.
const HighestStart int64 = maxStamp / 2

var errShort = errors.New("ends early")

// Size is about how long the encoded entry is, never less.
func (e *Entry) Size() int {
	n := 1 + originBytes + 4*binary.MaxVarintLen64
	for _, c := range e.Commands {
		n += 1 + binary.MaxVarintLen32 + len(c.Body)
		if c.User != 0 {
			n += binary.MaxVarintLen64
		}
	}
	return n
}

// AppendTo appends the encoded entry to b.
func (e *Entry) AppendTo(b []byte) []byte {
	b = append(b, byte(e.needs()))
	b = binary.AppendUvarint(b, uint64(e.Stamp))
	b = binary.AppendUvarint(b, uint64(e.Parts))
	b = binary.BigEndian.AppendUint64(b, e.Origin)
	b = binary.AppendUvarint(b, e.Seq)
	b = binary.AppendUvarint(b, uint64(len(e.Commands)))
	for _, c := range e.Commands {
		if c.User == 0 {
			b = append(b, byte(c.Kind))
		} else {
			b = binary.AppendUvarint(append(b, byte(c.Kind)|withUser), c.User)
		}
		b = binary.AppendUvarint(b, uint64(len(c.Body)))
		b = append(b, c.Body...)
	}
	return b
}

// Decode reads an encoded entry. The bodies alias b.
func Decode(b []byte) (Entry, error) {
	e, err := decode(b)
	if err != nil {
		return Entry{}, fmt.Errorf("decode log entry of %d bytes: %w", len(b), err)
	}
	return e, nil
}

// PartsOf reads only the participants of an encoded entry, none if it is damaged.
func PartsOf(b []byte) placement.Set {
	if len(b) == 0 || checkFormat(b[0]) != nil {
		return 0
	}
	r := reader{rest: b[1:]}
	r.uvarint() // the stamp
	return placement.Set(r.uvarint())
}

func (e *Entry) needs() version.Level {
	level := version.Level(1)
	for i := range e.Commands {
		level = max(level, e.Commands[i].Needs())
	}
	return level
}

func checkFormat(b byte) error {
	if b == 0 || version.Level(b) > version.Newest {
		return fmt.Errorf("format %d, this is stoa %s, which reads up to cluster version %v: start a release that knows %v",
			b, version.Stoa, version.Newest, version.Level(b))
	}
	return nil
}

func decode(b []byte) (e Entry, err error) {
	if len(b) == 0 {
		return e, errShort
	}
	if err := checkFormat(b[0]); err != nil {
		return e, err
	}
	r := reader{rest: b[1:]}
	stamp := r.uvarint()
	e.Parts = placement.Set(r.uvarint())
	if origin := r.bytes(originBytes); r.err == nil {
		e.Origin = binary.BigEndian.Uint64(origin)
	}
	e.Seq = r.uvarint()
	count := r.uvarint()
	switch {
	case r.err != nil:
		return e, r.err
	case stamp > maxStamp:
		return e, fmt.Errorf("stamp %d is no revision", stamp)
	case count > uint64(len(r.rest))/2: // a command takes two bytes at least
		return e, fmt.Errorf("%d commands announced in %d bytes", count, len(r.rest))
	}
	e.Stamp = int64(stamp)
	e.Commands = make([]Command, count)
	for i := range e.Commands {
		if kind := r.bytes(1); r.err == nil {
			e.Commands[i].Kind = Kind(kind[0] &^ withUser)
			if kind[0]&withUser != 0 {
				e.Commands[i].User = r.uvarint()
			}
		}
		e.Commands[i].Body = r.bytes(r.uvarint())
		if r.err != nil {
			return e, fmt.Errorf("command %d of %d: %w", i, count, r.err)
		}
	}
	if len(r.rest) > 0 {
		return e, fmt.Errorf("%d bytes after the last command", len(r.rest))
	}
	return e, nil
}

// reader reads from the front of rest; after the first error it yields zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	// The capacity ends with the body: appending to one never writes into the
	// next.
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errShort
	}
	r.rest = nil
}
