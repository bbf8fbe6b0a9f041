package salvage

import (
	"slices"

	"github.com/stoa-kv/stoa/internal/command"
)

// A member that was a leader, or followed one, may have a tail in one group that no majority
// ever had, while another group of it has gone on with the next leader. Two facts prove that an
// entry of an epoch was never committed, given that a later epoch has stamped, which is
// seen by anything stamped in it. The later epoch's leader had all that was committed in
// its logs, applied it, and began to stamp above it:
//
//	its stamps aren't below those of the later epoch (they would be used twice), or
//	it is a rendezvous, and a participant's log has something stamped in the later epoch,
//	but not the rendezvous, which the leader would have completed there before.
//
// An entry that takes no stamp carries the next one, and so shows only that the one before was given to
// some entry, which may have been lost: that one the later epoch gives again.
//
// Nothing behind such an entry in its log was committed either, since a log is committed from
// its front.

// dropStale cuts each log off at the first such entry.
func dropStale(logs []*log) {
	stamped := map[*log][]command.Epoch{}
	for _, l := range logs {
		stamped[l] = l.stamped()
	}
	copies := participants(logs)
	keep := make([]int, len(logs))
	for p, l := range logs {
		keep[p] = slices.IndexFunc(l.items, func(it item) bool {
			return repeats(&it, stamped) || overtaken(&it, logs, copies, stamped)
		})
	}
	for p, l := range logs {
		if keep[p] >= 0 {
			l.items = l.items[:keep[p]]
		}
	}
}

// stamped are the epochs of which the group has something that was stamped in them.
func (l *log) stamped() (epochs []command.Epoch) {
	note := func(e command.Epoch) {
		if e.First == 0 {
			return
		}
		i := slices.IndexFunc(epochs, func(o command.Epoch) bool { return o.Origin == e.Origin && o.Seq == e.Seq })
		if i < 0 {
			epochs = append(epochs, e)
		} else {
			epochs[i].First = min(epochs[i].First, e.First)
		}
	}
	for _, e := range l.Epochs.Before {
		note(e)
	}
	note(l.Epochs.Epoch)
	for i := range l.items {
		note(l.items[i].epoch.Note(&l.items[i].entry))
	}
	return epochs
}

// repeats reports whether the entry's stamps aren't below those of a later epoch.
func repeats(it *item, stamped map[*log][]command.Epoch) bool {
	if it.entry.Stamps() == 0 || it.entry.Stamp == 0 {
		return false
	}
	for _, epochs := range stamped {
		for _, e := range epochs {
			if it.epoch.Before(e) && it.entry.LastStamp() >= e.First {
				return true
			}
		}
	}
	return false
}

// overtaken reports whether the entry is a rendezvous that a participant lacks that has gone on
// with a later epoch.
func overtaken(it *item, logs []*log, copies map[proposal]*rendezvous, stamped map[*log][]command.Epoch) bool {
	if it.entry.Parts == 0 {
		return false
	}
	lacking := it.entry.Parts &^ copies[proposalOf(&it.entry)].in
	for p := range lacking.Each() {
		if slices.ContainsFunc(stamped[logs[p]], it.epoch.Before) {
			return true
		}
	}
	return false
}
