package command

import "slices"

// Epoch is a time in which one server stamps, as a group's log shows it: by the barrier
// that the server proposes in every group, the same in all, before it stamps. Of two epochs that both came to
// stamp, the one with the higher term of group 0 is the later, because a leader of an earlier term
// can't commit its barrier in group 0 any more; with equal terms both are of one server, and
// its barriers are numbered. So epochs can be compared that are seen in different logs.
type Epoch struct {
	Term   uint64 `json:"term"` // of group 0; 0, unknown, in the logs of earlier versions
	Origin uint64 `json:"origin"`
	Seq    uint64 `json:"seq"`
	// First is the lowest stamp of the epoch that is known, 0 if none is. It is above every
	// stamp of earlier epochs that was ever committed.
	First int64 `json:"first,omitempty"`
}

// Barrier is the entry with which an epoch begins in a group's log.
func Barrier(term, origin, seq uint64) Entry {
	return Entry{Stamp: int64(term), Origin: origin, Seq: seq}
}

// Opens returns the epoch that begins with the entry, if it is a barrier.
func (e *Entry) Opens() (epoch Epoch, ok bool) {
	if len(e.Commands) > 0 || e.Seq == 0 {
		return Epoch{}, false
	}
	return Epoch{Term: uint64(e.Stamp), Origin: e.Origin, Seq: e.Seq}, true
}

// Before reports whether an epoch is known to be earlier than another. One of which a file
// of an earlier version says nothing may be any.
func (e Epoch) Before(o Epoch) bool {
	if e.Term != o.Term && e.Term > 0 && o.Term > 0 {
		return e.Term < o.Term
	}
	return e.Origin == o.Origin && e.Seq < o.Seq
}

// Stamped reports whether an entry was stamped in the epoch. A rendezvous of an earlier one that
// is completed in this one keeps its old stamp.
func (e Epoch) Stamped(entry *Entry) bool {
	return len(entry.Commands) > 0 && entry.Stamp > 0 && entry.Origin == e.Origin && entry.Seq > e.Seq
}

// Note returns the epoch with what an entry shows of its first stamp.
func (e Epoch) Note(entry *Entry) Epoch {
	if e.Stamped(entry) && (e.First == 0 || entry.Stamp < e.First) {
		e.First = entry.Stamp
	}
	return e
}

// LastStamp is the highest stamp that the entry takes, or, if it takes none, the one before that
// which it carries.
func (e *Entry) LastStamp() int64 { return e.Stamp + int64(e.Stamps()) - 1 }

// Epochs are those of a group, as a place in its log knows them: the present one, and those before in which
// something was stamped, the earliest first. These may prove what another group's log has to be stale, as
// long as that group is in none as late ([Trim]).
type Epochs struct {
	Epoch
	Before []Epoch `json:"before,omitempty"` // never changed in place
}

// maxBefore bounds them. The first that comes behind an entry says most about it, so later ones are left out.
const maxBefore = 16

// Open is the epochs once another begins.
func (s Epochs) Open(e Epoch) Epochs {
	if s.First > 0 && len(s.Before) < maxBefore {
		s.Before = append(slices.Clip(s.Before), s.Epoch)
	}
	s.Epoch = e
	return s
}

// Equal reports whether both are the same.
func (s Epochs) Equal(o Epochs) bool { return s.Epoch == o.Epoch && slices.Equal(s.Before, o.Before) }

// Trim leaves out the epochs that no group has still to come to. What is in their logs behind
// the same cut is of none before those.
func Trim(groups []Epochs) {
	toCome := func(e Epoch) bool {
		return slices.ContainsFunc(groups, func(g Epochs) bool { return g.Term == 0 || g.Epoch.Before(e) })
	}
	for p := range groups {
		if before := groups[p].Before; len(before) > 0 {
			groups[p].Before = slices.DeleteFunc(slices.Clone(before), func(e Epoch) bool { return !toCome(e) })
		}
	}
}
