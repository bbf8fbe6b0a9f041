package commands

import (
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/client/mirror"
)

// Entry is a batch in a queue.
type Entry struct {
	Revision int64  // at which it was put
	Client   string // that put it
	Number   int64  // of the client's batches
	Commands []Command
}

// ErrOtherQueue: the mark is of a queue in another cluster, or of a later time than the queue's
// cluster has: that was restored or replaced.
var ErrOtherQueue = errors.New("the mark is of another queue")

// Carrier carries out the commands of a queue in one cluster. Its caller gives it the entries in
// their order (Add), executes the transactions that it asks for (Next) one at a time and tells the
// outcome (Wrote). It may be abandoned at any point: another one begins with the mark that it left.
type Carrier struct {
	cluster int // its place in the set
	limits  mirror.Limits
	owner   string
	now     func() int64

	mark Mark
	was  []byte // its value
	at   int64  // its revision, 0: there is none

	entries []Entry // not carried out; of the first, part commands are
	part    int
	asked   *asked
	passed  int64            // the last entry that was carried out, or had been before
	last    map[string]int64 // number of the last batch passed, by client
}

// asked is a transaction, and where the carrier is when it has taken effect.
type asked struct {
	txn     mirror.Txn
	mark    Mark
	entries int // those that are complete then
	part    int
	changes int // commands that it carries out
}

// CarrierConfig is that of a carrier.
type CarrierConfig struct {
	Cluster int // its place in the set
	Limits  mirror.Limits
	// Owner names the executor. Two must not have the same.
	Owner string
	// Now is the time for marks, in milliseconds since 1970. nil: they have none.
	Now func() int64
	// Queue is the ID of the queue's cluster, Revision one that it has had.
	Queue    uint64
	Revision int64
	// Done is what had been done when the carrier began: entries behind it are given to Add.
	Done int64
	// Mark is the value of the cluster's mark, At its revision: 0 if there is none.
	Mark []byte
	At   int64
}

// NewCarrier makes the carrier that goes on at a cluster's mark.
func NewCarrier(c CarrierConfig) (*Carrier, error) {
	m, err := ParseMark(c.Mark)
	if err != nil {
		return nil, err
	}
	if c.At != 0 && (m.Queue != c.Queue || m.Entry > c.Revision) {
		return nil, fmt.Errorf("%w: entry %d in cluster %x; the queue is in cluster %x, at revision %d", ErrOtherQueue, m.Entry, m.Queue, c.Queue, c.Revision)
	}
	if c.At == 0 {
		m = Mark{Queue: c.Queue, Place: Place{Entry: c.Done}}
	}
	return &Carrier{
		cluster: c.Cluster, limits: c.Limits, owner: c.Owner, now: c.Now,
		mark: m, was: c.Mark, at: c.At, passed: c.Done, last: map[string]int64{},
	}, nil
}

// Add gives it entries, in their order, without a gap behind those before. Entries that were
// carried out before it began are only noted.
func (c *Carrier) Add(entries ...Entry) {
	c.entries = append(c.entries, entries...)
	c.skip()
}

// Waiting is the number of entries that were given to it and are not carried out.
func (c *Carrier) Waiting() int { return len(c.entries) }

// Passed is the last entry with commands that the cluster has had, all of them, or that don't
// concern it; At a revision of the cluster at which it has had them, 0 if it never had any.
func (c *Carrier) Passed() (entry, at int64) { return c.passed, c.at }

// Mark is the one that it wrote or found last.
func (c *Carrier) Mark() Mark { return c.mark }

// skip passes over what the cluster has had, and what doesn't concern it.
func (c *Carrier) skip() {
	if c.asked != nil {
		return
	}
	for len(c.entries) > 0 {
		e := &c.entries[0]
		for c.part < len(e.Commands) && (c.mark.behind(e.Revision, c.part+1) || !c.concerned(e.Commands[c.part])) {
			c.part++
		}
		if c.part < len(e.Commands) {
			return
		}
		c.pass(1)
		c.part = 0
	}
}

func (c *Carrier) concerned(cmd Command) bool {
	for _, op := range cmd {
		if op.Cluster == c.cluster {
			return true
		}
	}
	return false
}

// pass removes the first entries.
func (c *Carrier) pass(n int) {
	for _, e := range c.entries[:n] {
		c.passed = e.Revision
		c.last[e.Client] = max(c.last[e.Client], e.Number)
	}
	clear(c.entries[:n])
	c.entries = c.entries[n:]
}

// Next is the transaction to execute: the same until Wrote. It is false if there is none.
func (c *Carrier) Next() (mirror.Txn, bool) {
	if c.asked == nil {
		if len(c.entries) == 0 {
			return mirror.Txn{}, false
		}
		c.asked = c.plan()
	}
	return c.asked.txn, true
}

// plan takes as many commands as one transaction may have, and one at least.
func (c *Carrier) plan() *asked {
	a := &asked{part: c.part, mark: Mark{Queue: c.mark.Queue, Owner: c.owner, Number: 1}}
	var all mirror.Bundle
	for full := false; a.entries < len(c.entries) && !full; {
		e := &c.entries[a.entries]
		for a.part < len(e.Commands) && !full {
			var one mirror.Bundle
			for _, op := range e.Commands[a.part] {
				if op.Cluster == c.cluster {
					one.Put(op.Op)
				}
			}
			if full = len(all.Ops()) > 0 && !all.Fits(&one, c.limits); !full {
				if len(one.Ops()) > 0 {
					a.changes++
				}
				all.Merge(&one)
				a.part++
			}
		}
		a.mark.Place = Place{Entry: e.Revision, Part: a.part}
		if a.part == len(e.Commands) {
			a.mark.Part = 0
			a.entries, a.part = a.entries+1, 0
		} else if a.part == 0 { // nothing of it: the place is behind the entry before
			a.mark.Place = Place{Entry: c.entries[a.entries-1].Revision}
		}
	}
	if c.mark.Owner == c.owner {
		a.mark.Number = c.mark.Number + 1
	}
	if c.now != nil {
		a.mark.Time = c.now()
	}
	a.txn = mirror.Txn{If: c.at, Was: c.was, Ops: all.Ops(), Mark: encode(a.mark)}
	return a
}

// Wrote: the transaction has taken effect, at a revision of the cluster. It had so many commands.
func (c *Carrier) Wrote(revision int64) (commands int) {
	a := c.asked
	c.asked = nil
	c.mark, c.was, c.at = a.mark, a.txn.Mark, revision
	c.pass(a.entries)
	c.part = a.part
	c.skip()
	return a.changes
}
