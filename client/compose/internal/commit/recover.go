package commit

// Found is what a recovery has found.
type Found uint8

const (
	// Failed: a cluster didn't answer.
	Failed Found = iota
	// Waits: the transaction is pending; its locks stay.
	Waits
	// Resolved: the lock that was met is gone.
	Resolved
)

// Recovery deals with locks of one transaction that were met in one cluster, or with its
// record. It is used by one goroutine.
type Recovery struct {
	txn   string
	home  uint64
	locks []Met
	at    Step
	was   []byte // the record
	rec   Record
	found Found
	err   error
}

// Recover makes the recovery of a transaction. locks are some of its locks in one cluster that
// were met, or none, if its record was.
func Recover(txn string, home uint64, locks []Met) *Recovery {
	return &Recovery{txn: txn, home: home, locks: locks}
}

// Found is what it has found, when Next has returned no requests.
func (r *Recovery) Found() Found { return r.found }

// Err is the error of a recovery that has failed.
func (r *Recovery) Err() error { return r.err }

// Next takes the answers to the requests that were returned last and returns those to send
// next; none when it has ended. It doesn't repeat requests.
func (r *Recovery) Next(answers []Answer) []Request {
	switch r.at {
	case "":
		r.at = Look
		return []Request{{Step: Look, Cluster: r.home, Then: []Op{get(r.recordKey())}}}
	case Look:
		return r.looked(answers[0])
	case Release:
		r.end(answers)
	case RollForward:
		if r.end(answers) {
			return r.finish(r.done())
		}
	case Finish:
		if answers[0].NoLease {
			r.at = Abandon // of the record: no client is left to know
			return []Request{{Step: Finish, Cluster: r.home, If: r.unchanged(), Then: []Op{del(r.recordKey())}}}
		}
	}
	return nil
}

func (r *Recovery) recordKey() string { return RecordPrefix + r.txn }

func (r *Recovery) unchanged() []Cond {
	return []Cond{{Key: r.recordKey(), Test: Is, Value: r.was}}
}

func (r *Recovery) looked(a Answer) []Request {
	if a.Err != nil {
		r.err = a.Err
		return nil
	}
	if a.KVs[0] == nil {
		return r.release()
	}
	r.was = a.KVs[0].Value
	if r.rec, r.err = ParseRecord(r.was); r.err != nil {
		return nil
	}
	switch r.rec.Phase {
	case Pending:
		r.found = Waits
		return nil
	case Done:
		r.found = Resolved // and the lock was seen before
		return nil
	}
	r.at = RollForward
	var all []Request
	for i := range r.rec.Parts {
		all = append(all, r.rec.Parts[i].rollForward(r.txn, r.home))
	}
	return all
}

// release removes locks of a transaction that has no record. It was written before them, so
// it has been removed: either nothing will commit the transaction any more, or it has been
// completed, and then these locks are gone.
func (r *Recovery) release() (all []Request) {
	r.at, r.found = Release, Resolved
	for _, l := range r.locks {
		key := LockPrefix + l.Key
		all = append(all, Request{Step: Release, Cluster: l.Cluster,
			If: []Cond{{Key: key, Test: IsAt, Mod: l.Mod}}, Then: []Op{del(key)}})
	}
	return all
}

// end reports whether all requests were answered.
func (r *Recovery) end(answers []Answer) bool {
	r.found = Resolved
	for _, a := range answers {
		if a.Err != nil {
			r.found, r.err = Failed, a.Err
		}
	}
	return r.found == Resolved
}

// done leaves the record to the client while it lives: it may not know that it has committed.
func (r *Recovery) done() Op {
	return Op{Do: Put, Key: r.recordKey(), Value: encode(Record{Phase: Done, Lease: r.rec.Lease}), Lease: r.rec.Lease}
}

func (r *Recovery) finish(op Op) []Request {
	r.at = Finish
	return []Request{{Step: Finish, Cluster: r.home, If: r.unchanged(), Then: []Op{op}}}
}
