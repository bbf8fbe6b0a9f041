package salvage

import (
	"errors"
	"slices"

	"github.com/stoa-kv/stoa/internal/command"
)

// A change of the number of partitions (command.Resize) ends a generation of groups: what stands
// behind it in a log belongs to the next one, which may have other groups, and the steps that would
// leave one member there would never be executed. So a plan goes no further than to the first that
// has to be kept, and completes that. The server executes it, makes the next generation,
// and plans again with its logs. One that turns out to be refused is no end, but the
// next plan has it behind it all the same. One that isn't for all groups is refused everywhere, since it was planned in
// an earlier generation: the groups that it isn't for have gone on without it.

// split takes off each log what is behind a change of the number of partitions, until it is
// executed.
func (l *log) split() {
	if i := slices.IndexFunc(l.items, func(it item) bool { return l.mayEnd(&it.entry) }); i >= 0 {
		l.items = l.items[:i+1]
	}
}

// end reports whether there is a change of the number of partitions that has to be executed before
// anything else. There can't be two: it is the last entry that its epoch has stamped, so
// a log with stamped entries of a later epoch has it in front of them, or proves it stale.
func end(logs []*log) bool { return slices.ContainsFunc(logs, (*log).ends) }

func (l *log) ends() bool {
	return len(l.items) > 0 && l.mayEnd(&l.items[len(l.items)-1].entry)
}

func (l *log) mayEnd(e *command.Entry) bool {
	parts := e.Parts
	if parts == 0 {
		parts = l.own
	}
	return e.Resizes() && l.all&^parts == 0
}

// toTheEnd plans no more than that all logs come to the end.
func toTheEnd(logs []*log, begin command.Entry) ([]Repair, error) {
	repairs := make([]Repair, len(logs))
	for p, l := range logs {
		switch {
		case !l.ends():
			var err error
			if repairs[p], err = l.append(begin, nil, nil); err != nil {
				return nil, err
			}
		case len(l.missing) > 0:
			return nil, errors.New("a group has come to the end of its generation without all rendezvous before it")
		default:
			repairs[p].Commit = l.Index + uint64(len(l.items))
		}
	}
	return repairs, nil
}
