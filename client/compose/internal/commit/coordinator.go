package commit

import (
	"bytes"
	"errors"
)

// Txn is a transaction.
type Txn struct {
	// ID is its name, different from that of every other one at the same home, ever.
	ID string
	// Lease is the client's, at home.
	Lease int64
	// Parts are its keys, in two or more clusters. The first part is home's.
	Parts []Part
}

// Part is the part of a transaction in one cluster: all keys that it reads or writes there, at
// least one and at most MaxKeys, each once.
type Part struct {
	Cluster uint64
	Keys    []string
}

// Outcome is what a coordinator knows of its transaction.
type Outcome uint8

const (
	// Open: it isn't decided yet.
	Open Outcome = iota
	// IsCommitted: it takes effect. If it changes nothing: its values were those of one moment.
	IsCommitted
	// IsAbandoned: it doesn't, and never will. Coordinator.Blockers, or else Err, say why.
	IsAbandoned
	// IsUnknown: the commit was sent, and neither its answer nor the record is there.
	IsUnknown
)

// ErrExpired: the client's lease has expired before the commit.
var ErrExpired = errors.New("the lease of the transaction's client has expired")

// Coordinator executes one transaction. It is used by one goroutine.
type Coordinator struct {
	txn      Txn
	at       Step
	sent     []Request
	values   [][]*KV // by part
	blockers []Met
	err      error
	outcome  Outcome
	retire   bool
	lost     bool // an answer to the commit
	decided  Record
}

// New makes the coordinator of a transaction.
func New(t Txn) *Coordinator { return &Coordinator{txn: t, values: make([][]*KV, len(t.Parts))} }

// Next takes the answers to the requests that were returned last and returns those to send
// next, none at the beginning. It returns none when the transaction is over, or when all keys
// are locked: then the caller goes on. After the outcome is known, the caller may stop
// at any time, and leave the rest to recoveries.
func (c *Coordinator) Next(answers []Answer) []Request {
	switch c.at {
	case "":
		c.at = Begin
		return c.send(c.begin())
	case Begin:
		return c.began(answers[0])
	case Prepare:
		return c.prepared(answers)
	case Commit:
		return c.committed(answers[0])
	case Confirm:
		return c.confirmed(answers[0])
	case RollForward:
		return c.again(answers, Finish)
	case Abandon:
		return c.abandoned(answers[0])
	case Finish, Release:
		return c.again(answers, "over")
	}
	return nil
}

// Locked reports that all keys are locked and the caller has to decide: by Commit, CommitNothing
// or Abandon.
func (c *Coordinator) Locked() bool { return c.at == "locked" }

// Values are the keys of a part, in its order, as they are while they are locked.
func (c *Coordinator) Values(part int) []*KV { return c.values[part] }

// Outcome is what is known of the transaction.
func (c *Coordinator) Outcome() Outcome { return c.outcome }

// Blockers are the locks of other transactions because of which it was abandoned.
func (c *Coordinator) Blockers() []Met { return c.blockers }

// Err is the error because of which it was abandoned, or is unknown.
func (c *Coordinator) Err() error { return c.err }

// Retire reports that the client's lease must be revoked, or left to expire: a record may be
// pending, or may become so when a request is executed late, which would keep others waiting.
func (c *Coordinator) Retire() bool { return c.retire }

func (c *Coordinator) send(rs ...Request) []Request {
	c.sent = rs
	return rs
}

func (c *Coordinator) home() uint64      { return c.txn.Parts[0].Cluster }
func (c *Coordinator) recordKey() string { return RecordPrefix + c.txn.ID }

func (c *Coordinator) pending() []byte {
	return encode(Record{Phase: Pending, Lease: c.txn.Lease})
}

func (c *Coordinator) begin() Request {
	r := c.lock(0, Begin)
	r.Then = append(r.Then, Op{Do: Put, Key: c.recordKey(), Value: c.pending(), Lease: c.txn.Lease})
	return r
}

// lock locks the keys of a part and reads them, if none of them is locked.
func (c *Coordinator) lock(part int, step Step) Request {
	p := c.txn.Parts[part]
	r := Request{Step: step, Cluster: p.Cluster}
	value := encode(Lock{Txn: c.txn.ID, Home: c.home()})
	for _, k := range p.Keys {
		r.If = append(r.If, Cond{Key: LockPrefix + k, Test: Absent})
		r.Then = append(r.Then, get(k))
		r.Else = append(r.Else, get(LockPrefix+k))
	}
	for _, k := range p.Keys {
		r.Then = append(r.Then, put(LockPrefix+k, value))
	}
	return r
}

func (c *Coordinator) began(a Answer) []Request {
	if !c.took(0, a) {
		// A request that is executed late makes a record that this client doesn't know of.
		c.retire = a.Err != nil && (!a.Refused || a.NoLease)
		c.outcome, c.at = IsAbandoned, "over"
		return nil
	}
	c.at = Prepare
	var all []Request
	for i := range c.txn.Parts[1:] {
		all = append(all, c.lock(i+1, Prepare))
	}
	return c.send(all...)
}

// took takes the answer to the request that locks a part.
func (c *Coordinator) took(part int, a Answer) bool {
	switch {
	case a.Err != nil:
		if c.err == nil {
			c.err = a.Err
		}
		return false
	case !a.Succeeded:
		c.blockers = append(c.blockers, MetIn(c.txn.Parts[part].Cluster, a.KVs)...)
		return false
	}
	c.values[part] = a.KVs
	return true
}

func (c *Coordinator) prepared(answers []Answer) []Request {
	all := true
	for i, a := range answers {
		all = c.took(i+1, a) && all
	}
	if !all {
		return c.Abandon()
	}
	c.at = "locked"
	return nil
}

// Commit commits, with the changes of each part, of keys that the part has.
func (c *Coordinator) Commit(writes [][]Write) []Request {
	c.at, c.decided = Commit, Record{Phase: Committed, Lease: c.txn.Lease}
	for i, p := range c.txn.Parts[1:] {
		part := RecordPart{Cluster: p.Cluster, Writes: writes[i+1]}
		for _, k := range p.Keys {
			part.Locked = append(part.Locked, []byte(k))
		}
		c.decided.Parts = append(c.decided.Parts, part)
	}
	r := Request{Step: Commit, Cluster: c.home(),
		If:   []Cond{{Key: c.recordKey(), Test: Is, Value: c.pending()}},
		Then: []Op{put(c.recordKey(), encode(c.decided))},
		Else: []Op{get(c.recordKey())}}
	for _, w := range writes[0] {
		r.Then = append(r.Then, w.op())
	}
	for _, k := range c.txn.Parts[0].Keys {
		r.Then = append(r.Then, del(LockPrefix+k))
	}
	return c.send(r)
}

func (c *Coordinator) committed(a Answer) []Request {
	switch {
	case a.Err != nil && !a.Refused:
		c.lost = true
		return c.send(c.sent...)
	case a.Err != nil && !c.lost:
		c.err = a.Err
		return c.Abandon()
	case a.Err != nil:
		return c.Unknown(a.Err)
	case a.Succeeded || a.KVs[0] != nil:
		// A record that isn't pending any more has been committed by a request whose answer
		// was lost.
		c.outcome, c.at = IsCommitted, RollForward
		var all []Request
		for i := range c.decided.Parts {
			all = append(all, c.decided.Parts[i].rollForward(c.txn.ID, c.home()))
		}
		return c.send(all...)
	case c.lost:
		return c.Unknown(ErrExpired)
	}
	c.outcome, c.err, c.retire = IsAbandoned, ErrExpired, true
	return c.release(0)
}

// Unknown ends the attempts to commit; err is the reason.
func (c *Coordinator) Unknown(err error) []Request {
	c.outcome, c.err, c.retire, c.at = IsUnknown, err, true, "over"
	return nil
}

// CommitNothing ends a transaction that changes nothing. Its values are of one moment only if all
// its locks are in place still, which home knows.
func (c *Coordinator) CommitNothing() []Request {
	c.at = Confirm
	return c.send(c.end(Confirm))
}

func (c *Coordinator) confirmed(a Answer) []Request {
	switch {
	case a.Err != nil: // it isn't sent again: if it was executed, the second answer would not say so
		c.outcome, c.err = IsAbandoned, a.Err
	case !a.Succeeded:
		c.outcome, c.err = IsAbandoned, ErrExpired
	default:
		c.outcome = IsCommitted
	}
	return c.abandoned(a)
}

// Abandon unlocks all keys. It must not be called after Commit.
func (c *Coordinator) Abandon() []Request {
	c.outcome, c.at = IsAbandoned, Abandon
	return c.send(c.end(Abandon))
}

// end removes a pending record, and home's locks.
func (c *Coordinator) end(step Step) Request {
	r := Request{Step: step, Cluster: c.home(),
		If:   []Cond{{Key: c.recordKey(), Test: Is, Value: c.pending()}},
		Then: []Op{del(c.recordKey())}}
	for _, k := range c.txn.Parts[0].Keys {
		r.Then = append(r.Then, del(LockPrefix+k))
	}
	return r
}

func (c *Coordinator) abandoned(a Answer) []Request {
	switch {
	case a.Err != nil:
		c.retire = true
		return c.release(1)
	case !a.Succeeded:
		return c.release(0)
	}
	return c.release(1)
}

// release unlocks the parts from one on, of a transaction that won't commit. Each lock by itself:
// recoveries may have removed some of them, and others have locked those keys.
func (c *Coordinator) release(from int) []Request {
	c.at = Release
	var all []Request
	for _, p := range c.txn.Parts[from:] {
		for _, k := range p.Keys {
			all = append(all, Request{Step: Release, Cluster: p.Cluster,
				If: []Cond{heldBy(k, c.txn.ID, c.home())}, Then: []Op{del(LockPrefix + k)}})
		}
	}
	return c.send(all...)
}

// again sends those requests again that had no answer, or goes on if there are none.
func (c *Coordinator) again(answers []Answer, then Step) []Request {
	var left []Request
	for i, a := range answers {
		if a.Err != nil {
			left = append(left, c.sent[i])
		}
	}
	if len(left) > 0 {
		return c.send(left...)
	}
	if c.at = then; then != Finish {
		return nil
	}
	return c.send(Request{Step: Finish, Cluster: c.home(), Then: []Op{del(c.recordKey())}})
}

// Met is a lock that was met.
type Met struct {
	Cluster uint64
	Key     string // the one that is locked
	Lock    Lock
	Mod     int64 // revision of the lock
	// Err, if its value can't be read.
	Err error
}

// MetIn are the locks among keys of a cluster; nil stands for none.
func MetIn(cluster uint64, kvs []*KV) (all []Met) {
	for _, kv := range kvs {
		if kv == nil {
			continue
		}
		l, err := ParseLock(kv.Value)
		name, _ := bytes.CutPrefix([]byte(kv.Key), []byte(LockPrefix))
		all = append(all, Met{Cluster: cluster, Key: string(name), Lock: l, Mod: kv.Mod, Err: err})
	}
	return all
}
