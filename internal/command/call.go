package command

import (
	"encoding/binary"
	"fmt"
)

// Call is a request handled by an extension: with the client's name, and the
// extension as the server that received the request found it.
type Call struct {
	Kind   Kind // of the request: Put, DeleteRange, Txn, Range or Watch
	Client string
	Lease  int64 // to which the client's keys can be attached, 0 for none
	// Name is the extension that is to handle the request, "" for none. It
	// was found in the registry of revision Version: in another revision of
	// the registry it may be wrong.
	Name    string
	Version int64
	// Language is the version of the language of extensions that the server speaks which
	// took the request in. A source that the request registers means what it means there.
	Language int
	Body     []byte // the marshalled request
}

// The encoded call: kind (1 byte) | client | lease | name | version | language | body, where
// strings are preceded by their length and numbers are unsigned varints.

// AppendTo appends the encoded call to b.
func (c *Call) AppendTo(b []byte) []byte {
	b = append(b, byte(c.Kind))
	b = binary.AppendUvarint(b, uint64(len(c.Client)))
	b = append(b, c.Client...)
	b = binary.AppendUvarint(b, uint64(c.Lease))
	b = binary.AppendUvarint(b, uint64(len(c.Name)))
	b = append(b, c.Name...)
	b = binary.AppendUvarint(b, uint64(c.Version))
	b = binary.AppendUvarint(b, uint64(c.Language))
	return append(b, c.Body...)
}

// DecodeCall reads the body of an Extended command. The call's Body aliases b.
func DecodeCall(b []byte) (Call, error) {
	r := reader{rest: b}
	var c Call
	if kind := r.bytes(1); r.err == nil {
		c.Kind = Kind(kind[0])
	}
	c.Client = string(r.bytes(r.uvarint()))
	c.Lease = int64(r.uvarint())
	c.Name = string(r.bytes(r.uvarint()))
	c.Version = int64(r.uvarint())
	c.Language = int(r.uvarint())
	if r.err != nil {
		return Call{}, fmt.Errorf("decode call of %d bytes: %w", len(b), r.err)
	}
	c.Body = r.rest
	return c, nil
}

// Inner are the kind and the body of the command inside a session's; of any other, and of one that can't be read, its own.
func (c *Command) Inner() (Kind, []byte) {
	if c.Kind == InSession {
		if q, err := DecodeSequenced(c.Body); err == nil {
			return q.Kind, q.Body
		}
	}
	return c.Kind, c.Body
}

// Request is the kind of request that a command answers.
func (c *Command) Request() Kind {
	kind, body := c.Inner()
	if kind == Extended && len(body) > 0 {
		return Kind(body[0])
	}
	return kind
}
