package audit

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Record is one line.
type Record struct {
	Time   time.Time `json:"time"`
	User   string    `json:"user,omitempty"`   // as authenticated; "" for none
	Client string    `json:"client,omitempty"` // its address
	Method string    `json:"method"`           // full, as gRPC writes it
	// Session is the lease of the session that the request came in, in hexadecimal.
	Session string `json:"session,omitempty"`

	Keys []Range `json:"keys,omitempty"`
	// Left is how many more the request names.
	Left int `json:"keys_left,omitempty"`
	Subject

	Code     string `json:"code"` // gRPC's
	Revision int64  `json:"revision,omitempty"`

	// Dropped stands alone in a line: so many lines before it are missing.
	Dropped uint64 `json:"dropped,omitempty"`
}

// Range is a key or a range of keys of a request, as [Escape] writes them.
type Range struct {
	Op  string `json:"op"` // compare, delete, put, range or watch; permission or prefix, of one that is changed
	Key string `json:"key"`
	End string `json:"range_end,omitempty"`
}

// Subject is what a request is about that isn't a key.
type Subject struct {
	Name        string   `json:"name,omitempty"` // of a user
	Role        string   `json:"role,omitempty"`
	Permission  string   `json:"permission,omitempty"`
	Lease       string   `json:"lease,omitempty"`  // in hexadecimal
	Member      string   `json:"member,omitempty"` // in hexadecimal
	URLs        []string `json:"urls,omitempty"`   // of the member
	Action      string   `json:"action,omitempty"`
	CompactedAt int64    `json:"compacted_at,omitempty"`
	Limits      string   `json:"limits,omitempty"`
}

// maxKeys and maxKey bound a line to some 650 KiB: a file that is rotated takes no line that
// is longer than the file may be, which is 1 MiB at least.
const (
	maxKeys = 256
	maxKey  = 256 // bytes, before they are escaped
)

func (r *Record) add(op string, key, end []byte) {
	if len(r.Keys) == maxKeys {
		r.Left++
		return
	}
	r.Keys = append(r.Keys, Range{op, Escape(key), Escape(end)})
}

// line is the record as it is written. Names that clients choose are made readable.
func (r *Record) line() []byte {
	for _, text := range []*string{&r.User, &r.Name, &r.Role, &r.Action} {
		*text = fault.Readable(*text)
	}
	b, err := json.Marshal(r)
	if err != nil { // no field can cause it
		return nil
	}
	return append(b, '\n')
}

const digits = "0123456789abcdef"

// Escape writes a key so that it can be read and searched for: printable ASCII stands for
// itself, the backslash for \\, and every other byte is written as \xNN. Of a long key the
// beginning is shown, and its length: \...(1000 bytes).
func Escape(key []byte) string {
	if len(key) > maxKey {
		return Escape(key[:maxKey]) + fmt.Sprintf(`\...(%d bytes)`, len(key))
	}
	plain := true
	for _, c := range key {
		plain = plain && ' ' <= c && c <= '~' && c != '\\'
	}
	if plain {
		return string(key)
	}
	b := make([]byte, 0, len(key)+16)
	for _, c := range key {
		switch {
		case c == '\\':
			b = append(b, '\\', '\\')
		case ' ' <= c && c <= '~':
			b = append(b, c)
		default:
			b = append(b, '\\', 'x', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}
