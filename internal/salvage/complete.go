package salvage

import (
	"cmp"
	"slices"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
)

// proposal names an entry in all logs.
type proposal struct{ origin, seq uint64 }

func proposalOf(e *command.Entry) proposal { return proposal{e.Origin, e.Seq} }

// rendezvous is one that is in the tail of some participants' logs. It is in no state, which
// would have it in all partitions.
type rendezvous struct {
	entry  command.Entry
	in     placement.Set
	epoch  command.Epoch      // the earliest in which it stands; to be completed, in which it was stamped, if a log shows that
	late   bool               // it was stamped in that one; else it was completed there, in front of those that were
	config *membership.Config // in front of it, where it had got least far
}

// absent is a rendezvous that a log lacks.
type absent struct {
	entry command.Entry
	steps []membership.Step // in front of it
}

func participants(logs []*log) map[proposal]*rendezvous {
	all := map[proposal]*rendezvous{}
	for p, l := range logs {
		config := l.Config
		for i := range l.items {
			it := &l.items[i]
			if it.step != nil {
				config, _ = config.Next(*it.step)
			}
			if it.entry.Parts == 0 {
				continue
			}
			r := all[proposalOf(&it.entry)]
			if r == nil {
				r = &rendezvous{entry: it.entry, epoch: it.epoch, config: config}
				all[proposalOf(&it.entry)] = r
			}
			if config.Generation < r.config.Generation {
				r.config = config
			}
			r.in |= placement.Of(p)
			if it.epoch.Before(r.epoch) {
				r.epoch = it.epoch
			}
		}
	}
	return all
}

// epochs are all that the logs show, those of one server in their order.
func epochs(logs []*log) (all []command.Epoch) {
	for _, l := range logs {
		all = append(append(all, l.Epochs.Before...), l.Epochs.Epoch)
		for i := range l.items {
			if e, ok := l.items[i].entry.Opens(); ok {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b command.Epoch) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Seq, b.Seq))
	})
	return all
}

// stampedIn is the one of epochs in which an entry was stamped: the last of its server that began before it.
func stampedIn(entry *command.Entry, epochs []command.Epoch) (e command.Epoch, is bool) {
	for _, e := range slices.Backward(epochs) {
		if e.Stamped(entry) {
			return e, true
		}
	}
	return e, false
}

// complete adds each rendezvous to the logs that lack it. They go behind everything: what an
// epoch has put behind one of its rendezvous in a log, is not in the log without it, and a
// later epoch has completed it or proven it stale.
//
// Some are refused unless all groups have followed the list of members. They were proposed when these had, or
// before a change of the list of which no group had done a step in front of them. So a log that lacks one
// also lacks the steps of the groups that have it, and gets them in front of it: it takes effect then, or doesn't, as it did
// in the cluster.
func complete(logs []*log) {
	var order []*rendezvous
	known := epochs(logs)
	for _, r := range participants(logs) {
		if r.in == r.entry.Parts {
			continue
		}
		if e, is := stampedIn(&r.entry, known); is {
			r.epoch, r.late = e, true
		}
		order = append(order, r)
	}
	slices.SortFunc(order, earlier)
	for _, r := range order {
		for p := range (r.entry.Parts &^ r.in).Each() {
			a := absent{entry: r.entry}
			if r.entry.Resizes() || changesMembers(&r.entry) {
				a.steps = logs[p].config().Following(r.config)
			}
			logs[p].missing = append(logs[p].missing, a)
		}
	}
}

// earlier is the order of epochs: a leader completes what was stamped before it. In an epoch it is that of stamps, where
// an entry that takes none comes before the one that takes the number that it carries. Stamps alone aren't an order: the one
// in front of an entry that takes none may have been lost, and then the next epoch has given it, and that one, again.
func earlier(a, b *rendezvous) int {
	switch {
	case a.epoch.Term == 0 || b.epoch.Term == 0: // unknown
	case a.epoch.Before(b.epoch):
		return -1
	case b.epoch.Before(a.epoch):
		return 1
	case a.late != b.late:
		if b.late {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.entry.Stamp, b.entry.Stamp), cmp.Compare(a.entry.LastStamp(), b.entry.LastStamp()),
		cmp.Compare(a.entry.Seq, b.entry.Seq), cmp.Compare(a.entry.Origin, b.entry.Origin))
}
