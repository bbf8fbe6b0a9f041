package commands

// Finisher removes the entries that all carriers have passed, and says so in the record Done.
type Finisher struct {
	limit int // most clients in one transaction
	done  Done
	at    int64 // revision of the record, 0: there is none
	asked *Finish
}

// Finish is a transaction of the queue's cluster.
type Finish struct {
	// If is the revision that the record must have, 0: there must be none.
	If int64
	// Remove are the last batches of clients that are removed, with those before.
	Remove map[string]int64
	// Done is the new record; nil: it stays, since there are more entries to remove before.
	Done []byte
	next Done
}

// NewFinisher begins with the record of the queue and its revision, 0 if there is none. A
// transaction has at most limit removals.
func NewFinisher(done Done, at int64, limit int) *Finisher {
	return &Finisher{limit: max(limit, 1), done: done, at: at}
}

// Done is the record that was written or found last.
func (f *Finisher) Done() Done { return f.done }

// Next is the transaction to execute: the same until Wrote or Found. It is false if there is
// nothing to say.
func (f *Finisher) Next(carriers []*Carrier) (Finish, bool) {
	if f.asked == nil {
		slowest := carriers[0]
		for _, c := range carriers {
			if c.passed < slowest.passed {
				slowest = c
			}
		}
		if slowest.passed <= f.done.Entry {
			return Finish{}, false
		}
		f.asked = f.plan(slowest, carriers)
	}
	return *f.asked, true
}

func (f *Finisher) plan(slowest *Carrier, carriers []*Carrier) *Finish {
	a := &Finish{If: f.at, Remove: map[string]int64{}}
	for client, number := range slowest.last {
		if len(a.Remove) == f.limit {
			return a
		}
		a.Remove[client] = number
	}
	a.next.Entry = slowest.passed
	for _, c := range carriers {
		a.next.Revisions = append(a.next.Revisions, c.at)
	}
	a.Done = encode(a.next)
	return a
}

// Wrote: the transaction has taken effect, at a revision.
func (f *Finisher) Wrote(revision int64, carriers []*Carrier) {
	a := f.asked
	f.asked = nil
	for _, c := range carriers {
		for client, number := range a.Remove {
			if c.last[client] <= number {
				delete(c.last, client)
			}
		}
	}
	if a.Done != nil {
		f.done, f.at = a.next, revision
	}
}

// Found: the transaction was refused, because the record is another one.
func (f *Finisher) Found(done Done, at int64) { f.asked, f.done, f.at = nil, done, at }
