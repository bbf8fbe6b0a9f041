package elle

import (
	"fmt"
	"strings"
)

// Outcome is what the client knows of a transaction.
type Outcome int

const (
	OK      Outcome = iota // it was answered
	Failed                 // it certainly did not happen
	Unknown                // no answer came
)

// Step is one operation of a transaction, on one list.
type Step struct {
	Key    string
	Append int   // the value appended; 0 for a read
	Read   []int // what a read that was answered found
}

// Txn is one transaction, with its steps in their order. Times are of one clock.
type Txn struct {
	Client   int
	Sent     int64
	Answered int64 // if it was
	Outcome  Outcome
	Steps    []Step
}

func (t *Txn) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "client %d %d..%d", t.Client, t.Sent, t.Answered)
	for _, s := range t.Steps {
		if s.Append != 0 {
			fmt.Fprintf(&b, " append(%s, %d)", s.Key, s.Append)
		} else {
			fmt.Fprintf(&b, " read(%s, %v)", s.Key, s.Read)
		}
	}
	return b.String() + [...]string{"", " (failed)", " (no answer)"}[t.Outcome]
}
