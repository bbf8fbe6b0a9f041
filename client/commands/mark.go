package commands

import (
	"encoding/json"
	"fmt"
)

// Place is one in a queue: behind all entries up to the revision Entry, or, if Part is not 0,
// behind the first so many commands of that entry.
type Place struct {
	Entry int64 `json:"entry"`
	Part  int   `json:"part,omitempty"`
}

// behind reports whether the place is behind that many commands of an entry; all is whether
// these are all.
func (p Place) behind(entry int64, commands int) bool {
	return entry < p.Entry || entry == p.Entry && (p.Part == 0 || commands <= p.Part)
}

// Mark is the progress of a queue in one of its clusters, the value of a key there.
type Mark struct {
	Queue  uint64 `json:"queue"` // ID of the cluster in which the queue is
	Place         // up to which the cluster has had the commands
	Owner  string `json:"owner"`  // the executor that wrote it
	Number int64  `json:"number"` // how many marks the owner wrote before, in this cluster
	// Time is when it was written, by the owner's clock: milliseconds since 1970.
	Time int64 `json:"time,omitempty"`
}

// ParseMark reads the value of a mark's key; without one it is the zero mark.
func ParseMark(value []byte) (m Mark, err error) {
	if len(value) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(value, &m); err != nil {
		return m, fmt.Errorf("the mark %q can't be read: %w", value, err)
	}
	return m, nil
}

// Done says which commands every cluster has had. It is the value of a key of the queue.
type Done struct {
	Entry int64 `json:"entry"` // the last entry with such commands, 0: none
	// Revisions of the clusters, in the order of the set, at which they have had them. 0 if
	// a cluster has never had any.
	Revisions []int64 `json:"revisions,omitempty"`
}

// ParseDone reads the value of the key; without one nothing is done.
func ParseDone(value []byte) (d Done, err error) {
	if len(value) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(value, &d); err != nil {
		return d, fmt.Errorf("the record %q of what is done can't be read: %w", value, err)
	}
	return d, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings
	}
	return b
}
