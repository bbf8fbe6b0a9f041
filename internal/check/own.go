package check

import "slices"

// Own remembers what this server has found at the last checks. It belongs to one life of the
// state: a server that takes in a snapshot executes checks again, with another state, and has a
// new Own.
type Own struct{ list []found }

type found struct {
	place  Place
	digest Digest
	voters []uint64
}

// Judgement is what a verdict says about a server.
type Judgement int

// The judgements.
const (
	Unknown Judgement = iota // nothing: see invariants 2 and 3
	Agrees
	Differs
)

func (j Judgement) String() string { return [...]string{"unknown", "agrees", "differs"}[j] }

// Executed notes the digest of this server, and the voters of its list, at a check. It returns
// false if there is one for this place already.
func (o *Own) Executed(at Place, d Digest, voters []uint64) bool {
	if o.find(at) != nil {
		return false
	}
	if o.list = append(o.list, found{at, d, slices.Clone(voters)}); len(o.list) > kept {
		o.list = slices.Delete(o.list, 0, 1)
	}
	return true
}

// Judge compares this server with a verdict; own is what it has found there.
func (o *Own) Judge(v Verdict) (j Judgement, own Digest) {
	f := o.find(v.Place)
	if f == nil || v.Version != Version {
		return Unknown, own
	}
	agree := 0
	for _, id := range v.Agree {
		if slices.Contains(f.voters, id) {
			agree++
		}
	}
	switch {
	case !majority(agree, len(f.voters)):
		return Unknown, f.digest
	case f.digest == v.Digest:
		return Agrees, f.digest
	}
	return Differs, f.digest
}

func (o *Own) find(at Place) *found {
	for i := range o.list {
		if o.list[i].place == at {
			return &o.list[i]
		}
	}
	return nil
}
