package commit

import (
	"encoding/json"
	"fmt"
)

// Keys of the protocol in each cluster.
const (
	// Prefix of them all.
	Prefix = "/stoa/txn/"
	// LockPrefix stands before the name of a locked key.
	LockPrefix = Prefix + "lock/"
	// RecordPrefix stands before the name of a transaction, at its home.
	RecordPrefix = Prefix + "record/"
)

// MaxKeys is the number of keys that a transaction may have in one cluster: the commit has two
// operations for each and two more, and etcd's --max-txn-ops is 128.
const MaxKeys = 60

// Lock is the value of a lock.
type Lock struct {
	Txn  string `json:"txn"`
	Home uint64 `json:"home"` // ID of the cluster that has the record
}

// Phase is the state of a transaction that has a record.
type Phase string

// The phases. A transaction without a record was abandoned, or has been completed.
const (
	// Pending: not decided. The record ends with the client's lease.
	Pending Phase = "pending"
	// Committed: decided. The keys of clusters other than home may still be locked.
	Committed Phase = "committed"
	// Done: committed and completed, by another client than its own, which may not know.
	// The record ends with the client's lease.
	Done Phase = "done"
)

// Record is the value of a record.
type Record struct {
	Phase Phase `json:"phase"`
	Lease int64 `json:"lease"` // the client's, at home
	// Parts are those in clusters other than home, once it is committed.
	Parts []RecordPart `json:"parts,omitempty"`
}

// RecordPart is the part of a transaction in one cluster.
type RecordPart struct {
	Cluster uint64   `json:"cluster"`
	Locked  [][]byte `json:"locked"` // all keys
	Writes  []Write  `json:"writes,omitempty"`
}

// Write is one change: a put or a deletion.
type Write struct {
	Key    []byte `json:"key"`
	Value  []byte `json:"value,omitempty"`
	Delete bool   `json:"delete,omitempty"`
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers, strings and bytes
	}
	return b
}

// ParseLock reads the value of a lock.
func ParseLock(b []byte) (l Lock, err error) {
	if err := json.Unmarshal(b, &l); err != nil || l.Txn == "" {
		return l, fmt.Errorf("the lock %q can't be read (%v)", b, err)
	}
	return l, nil
}

// ParseRecord reads the value of a record.
func ParseRecord(b []byte) (r Record, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("the record %q can't be read: %w", b, err)
	}
	switch r.Phase {
	case Pending, Committed, Done:
		return r, nil
	}
	return r, fmt.Errorf("the record %q has an unknown phase: it was written by a later version", b)
}

func (p *RecordPart) rollForward(txn string, home uint64) Request {
	r := Request{Step: RollForward, Cluster: p.Cluster, If: []Cond{heldBy(string(p.Locked[0]), txn, home)}}
	for _, w := range p.Writes {
		r.Then = append(r.Then, w.op())
	}
	for _, k := range p.Locked {
		r.Then = append(r.Then, del(LockPrefix+string(k)))
	}
	return r
}

func (w *Write) op() Op {
	if w.Delete {
		return del(string(w.Key))
	}
	return put(string(w.Key), w.Value)
}

// heldBy holds while a transaction has a lock. While it has a record, it has all of its locks in
// that cluster then: they are written together, and removed together. Without a record, recoveries
// remove those that they meet.
func heldBy(key, txn string, home uint64) Cond {
	return Cond{Key: LockPrefix + key, Test: Is, Value: encode(Lock{Txn: txn, Home: home})}
}
