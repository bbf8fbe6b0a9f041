package extension

import (
	"fmt"
	"strings"
)

// Op is a kind of request that an extension can handle.
type Op uint8

// The operations. Block is the opening of a watch.
const (
	Read Op = iota
	Put
	Delete
	Txn
	Block
	ops
)

var opNames = [ops]string{Read: "read", Put: "put", Delete: "delete", Txn: "txn", Block: "block"}

func (o Op) String() string { return opNames[o] }

// EventType is a kind of change.
type EventType uint8

// The events. Expired is a deletion by the end of the key's lease, Deleted any
// other.
const (
	Created EventType = iota
	Modified
	Deleted
	Expired
	eventTypes
)

var eventNames = [eventTypes]string{Created: "created", Modified: "modified", Deleted: "deleted", Expired: "expired"}

func (t EventType) String() string { return eventNames[t] }

// Pattern is one key or, if it ends in a slash, every key below it.
type Pattern string

// IsPrefix tells whether the pattern is more than one key.
func (p Pattern) IsPrefix() bool { return strings.HasSuffix(string(p), "/") }

// Covers tells whether a key matches.
func (p Pattern) Covers(key string) bool {
	return key == string(p) || p.IsPrefix() && strings.HasPrefix(key, string(p))
}

// overlaps tells whether any key matches both.
func (p Pattern) overlaps(o Pattern) bool { return p.Covers(string(o)) || o.Covers(string(p)) }

// Bounds are the range that the pattern covers, as in etcd's requests.
func (p Pattern) Bounds() (key, end []byte) {
	key = []byte(p)
	if !p.IsPrefix() {
		return key, nil
	}
	end = []byte(p)
	end[len(end)-1]++ // a slash: no carry
	return key, end
}

const maxPattern = 1024

func checkPattern(s string) (Pattern, error) {
	p := Pattern(s)
	switch {
	case s == "" || s == "/":
		return "", fmt.Errorf("%q is too wide: name a key, or a prefix that ends in \"/\"", s)
	case len(s) > maxPattern:
		return "", fmt.Errorf("a key of %d bytes is too long, %d are allowed", len(s), maxPattern)
	case p.overlaps(Pattern(Root)):
		return "", fmt.Errorf("%q lies under %s, which is the extension manager's", s, Root)
	}
	return p, nil
}

// OpSubscription names requests that an extension handles.
type OpSubscription struct {
	Op      Op
	Pattern Pattern
}

// EventSubscription names changes that an extension reacts to.
type EventSubscription struct {
	Type    EventType
	Pattern Pattern
}
