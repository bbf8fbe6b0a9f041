package mirror

import (
	"encoding/json"
	"fmt"
)

// Phase says which state of the source the target has.
type Phase string

// The phases of a mirror.
const (
	// Copying: the target is between two states. The next executor copies again.
	Copying Phase = "copying"
	// At: the target is the source at the mark's revision.
	At Phase = "at"
	// Partial: the target is the source at the revision before the mark's, and has some
	// of the changes of the mark's revision.
	Partial Phase = "partial"
	// Leaving: the target is the source at the mark's revision, but for leases, which are
	// being attached to its keys (package migrate). They may end by themselves, so the next
	// executor copies again.
	Leaving Phase = "leaving"
)

// Mark is the progress of a mirror, the value of one key of the target.
type Mark struct {
	Source   uint64 `json:"source"` // ID of the source's cluster
	Phase    Phase  `json:"phase"`
	Revision int64  `json:"revision"` // of the source
	Owner    string `json:"owner"`    // the executor that wrote it
	Number   int64  `json:"number"`   // how many marks the owner wrote before
	// After is the revision of the source that the target had before, in phases At and
	// Partial; 0 in the first mark behind a copy.
	After int64 `json:"after,omitempty"`
	// Keys says which keys of the source are mirrored; the meaning is the caller's.
	Keys string `json:"keys,omitempty"`
	// Time is when it was written, by the owner's clock: milliseconds since 1970.
	Time int64 `json:"time,omitempty"`
}

func (m Mark) encode() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // numbers and strings
	}
	return b
}

// ParseMark reads the value of a mark's key.
func ParseMark(b []byte) (m Mark, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("the mark %q can't be read: %w", b, err)
	}
	switch m.Phase {
	case Copying, At, Partial, Leaving:
		return m, nil
	}
	return m, fmt.Errorf("the mark %q has an unknown phase: it was written by a later version", b)
}
