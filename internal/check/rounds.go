package check

import (
	"maps"
	"slices"
)

// Rounds collects the reports of the last checks. Every server has them, so that one which
// comes to lead goes on; reports go to the leader alone.
type Rounds struct{ list []*round } // the last places, ascending

// kept is how many places are remembered, here and in Own.
const kept = 8

type round struct {
	place   Place
	voters  []uint64 // nil: this server hasn't executed the check
	reports map[uint64]Digest
	ended   bool
}

// Decision is what the reports of a round lead to.
type Decision int

// The decisions.
const (
	Open    Decision = iota // nothing yet, or nothing more
	Decided                 // a majority agrees, by the verdict
	Split                   // no majority does
)

// Executed notes that this server has executed a check, with the voters of its list there, and
// what it has found.
func (r *Rounds) Executed(own Report, voters []uint64) (Decision, Verdict) {
	if at := r.at(own.Place); at != nil && at.voters == nil {
		at.voters = slices.Clone(voters)
	}
	return r.Told(own)
}

// Told takes a report. Of one member the first counts: it may be sent again.
func (r *Rounds) Told(of Report) (Decision, Verdict) {
	if of.Version != Version {
		return Open, Verdict{}
	}
	at := r.at(of.Place)
	if at == nil {
		return Open, Verdict{}
	}
	if _, has := at.reports[of.Member]; !has {
		at.reports[of.Member] = of.Digest
	}
	return at.decide()
}

// Decided notes a verdict in the log, whichever server proposed it: nothing is left to decide
// about its place, or about those before it.
func (r *Rounds) Decided(at Place) {
	for _, old := range r.list {
		if old.place.compare(at) <= 0 {
			old.ended = true
		}
	}
}

// Expire ends the rounds for which patience has ended: all but those of the last checks, as many
// as keep says. It returns Split if the reports of one of them differ.
func (r *Rounds) Expire(keep int) (d Decision, at Place) {
	for _, old := range r.list[:max(0, len(r.list)-keep)] {
		if !old.ended && old.differ() {
			d, at = Split, old.place
		}
		old.ended = true
	}
	return d, at
}

// at is the round of a place, made if there is none. It returns nil for one that is behind all
// that are kept: a server that is started again tells of all checks in its log once more, and
// must not push out those that are under way.
func (r *Rounds) at(p Place) *round {
	i, found := slices.BinarySearchFunc(r.list, p, func(at *round, p Place) int { return at.place.compare(p) })
	switch {
	case found:
		return r.list[i]
	case i == 0 && len(r.list) == kept:
		return nil
	}
	at := &round{place: p, reports: map[uint64]Digest{}}
	if r.list = slices.Insert(r.list, i, at); len(r.list) > kept {
		r.list = slices.Delete(r.list, 0, 1)
	}
	return at
}

// decide looks whether a majority of the voters agrees, or none can any more.
func (r *round) decide() (Decision, Verdict) {
	if r.ended || r.voters == nil {
		return Open, Verdict{}
	}
	agree, missing := r.count()
	most := 0
	for _, digest := range slices.SortedFunc(maps.Keys(agree), compare) {
		members := agree[digest]
		if majority(len(members), len(r.voters)) {
			r.ended = true
			slices.Sort(members)
			return Decided, Verdict{Version, r.place, digest, members}
		}
		most = max(most, len(members))
	}
	if !majority(most+missing, len(r.voters)) {
		r.ended = true
		return Split, Verdict{}
	}
	return Open, Verdict{}
}

// count returns the voters by what they reported, and how many haven't.
func (r *round) count() (agree map[Digest][]uint64, missing int) {
	agree = map[Digest][]uint64{}
	for _, id := range r.voters {
		if d, has := r.reports[id]; has {
			agree[d] = append(agree[d], id)
		} else {
			missing++
		}
	}
	return agree, missing
}

// differ reports whether two voters have told different things.
func (r *round) differ() bool {
	agree, _ := r.count()
	return len(agree) > 1
}

func majority(n, of int) bool { return 2*n > of }

func compare(a, b Digest) int { return slices.Compare(a[:], b[:]) }
