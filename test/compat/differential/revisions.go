package differential

import (
	"fmt"
	"sort"
)

// revisions pairs the reference's revisions, which are dense, with those of the
// server under test, which may have gaps.
type revisions struct {
	// of[r] is what the server under test calls the reference's revision r.
	of []int64
	// seen is the highest revision that the server under test has shown.
	seen int64
}

func newRevisions() *revisions { return &revisions{of: []int64{0, 1}, seen: 1} }

// current is the reference's last revision.
func (r *revisions) current() int64 { return int64(len(r.of) - 1) }

// pair notes that both gave these revisions to one write.
func (r *revisions) pair(ref, sut int64) error {
	if ref != r.current()+1 {
		return fmt.Errorf("the reference went from revision %d to %d at one write", r.current(), ref)
	}
	if last := r.of[len(r.of)-1]; sut <= last {
		return fmt.Errorf("a new write has revision %d, but %d was given out before", sut, last)
	}
	r.of = append(r.of, sut)
	r.seen = max(r.seen, sut)
	return nil
}

// forth translates a revision in a request.
func (r *revisions) forth(ref int64) int64 {
	switch {
	case ref <= 0:
		return ref
	case ref <= r.current():
		return r.of[ref]
	}
	return r.seen + ref - r.current() // the future stays as far away
}

// back translates a revision that belongs to a write; one that belongs to none comes
// back negative, which no reference ever says.
func (r *revisions) back(sut int64) int64 {
	if sut <= 0 {
		return sut
	}
	ref := r.floor(sut)
	if r.of[ref] != sut {
		return -sut
	}
	return ref
}

// floor translates a header's revision: the last write at or below it.
func (r *revisions) floor(sut int64) int64 {
	if sut <= 0 {
		return sut
	}
	return int64(sort.Search(len(r.of), func(i int) bool { return r.of[i] > sut }) - 1)
}
