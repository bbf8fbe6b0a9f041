package salvage

import (
	"cmp"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
)

// Group is one group of the member: the state, which is one cut over all groups, and the log
// behind it.
type Group struct {
	Config   *membership.Config // of the state, like the three that follow
	Epochs   command.Epochs
	Index    uint64
	Revision int64
	Tail     []*raftpb.Entry // behind Index, without a gap
	Term     uint64          // the last in which the member has taken part
}

// Repair is what becomes of a group's log: the entries replace those from the index of the
// first one on, and all are committed.
type Repair struct {
	Entries []*raftpb.Entry
	// Commit is the index through which the log is committed if there are no entries: then it
	// stays as it is.
	Commit uint64
	// Dropped is the number of entries that are given up, since they can't have been committed.
	Dropped int
	// Completed is the number of rendezvous that other groups' logs have, and this one lacked.
	Completed int
}

// Plan returns the repair of each group's log, or nil if the member is alone already. origin
// must never have named a proposal. If it isn't done, the repairs only bring all groups to a change of
// the number of partitions (ending.go): once that is executed, there has to be another plan.
func Plan(self *pb.Member, list *membership.List, groups []Group, origin uint64) (repairs []Repair, done bool, err error) {
	logs, err := read(groups)
	if err != nil {
		return nil, false, err
	}
	if alone(self.GetID(), list, logs) {
		return nil, true, nil
	}
	top := latest(logs) // behind an end, too
	for _, l := range logs {
		l.split()
	}
	if len(logs) > 1 {
		dropStale(logs)
		complete(logs)
	}
	logs[0].Term = max(logs[0].Term, top)
	begin := command.Barrier(logs[0].Term+1, origin, 1)
	if end(logs) {
		repairs, err = toTheEnd(logs, begin)
		return repairs, false, err
	}
	reset, err := reset(self, logs, origin)
	if err != nil {
		return nil, false, err
	}
	repairs = make([]Repair, len(logs))
	for p, l := range logs {
		if repairs[p], err = l.append(begin, l.config().Alone(self.GetID()), &reset); err != nil {
			return nil, false, err
		}
	}
	return repairs, true, nil
}

// log is a group's log while it is repaired.
type log struct {
	Group
	own     placement.Set // this group
	all     placement.Set // all groups
	items   []item
	missing []absent // to be appended
}

// item is an entry of a tail.
type item struct {
	entry command.Entry
	step  *membership.Step // of the configuration; nil in nearly all
	epoch command.Epoch    // in which the entry stands
}

func read(groups []Group) ([]*log, error) {
	var logs []*log
	for p, g := range groups {
		l := &log{Group: g, own: placement.Of(p), all: placement.All(len(groups))}
		epoch := g.Epochs.Epoch
		for _, e := range g.Tail {
			it, err := readItem(e)
			if err != nil {
				return nil, fmt.Errorf("entry %d of group %d: %w", e.GetIndex(), p, err)
			}
			if opened, ok := it.entry.Opens(); ok {
				epoch = opened
			}
			it.epoch = epoch
			l.items = append(l.items, it)
		}
		logs = append(logs, l)
	}
	return logs, nil
}

func readItem(e *raftpb.Entry) (it item, err error) {
	switch {
	case e.GetType() != raftpb.EntryNormal:
		var step membership.Step
		step, err = raftlog.StepIn(e)
		it.step = &step
	case len(e.GetData()) > 0:
		it.entry, err = command.Decode(e.GetData())
	}
	return it, err
}

// config is the group's configuration behind its log, and what is to be appended.
func (l *log) config() *membership.Config {
	c := l.Config
	for i := range l.items {
		if s := l.items[i].step; s != nil {
			c, _ = c.Next(*s)
		}
	}
	for i := range l.missing {
		for _, s := range l.missing[i].steps {
			c, _ = c.Next(s)
		}
	}
	return c
}

// alone reports whether there is no other member, and no change of them in any log: a step that
// leaves one voter may stand there and need the other one to be committed.
func alone(id uint64, list *membership.List, logs []*log) bool {
	if len(list.Members) != 1 || list.Members[0].GetID() != id || list.Members[0].GetIsLearner() {
		return false
	}
	for _, l := range logs {
		if len(l.Config.Alone(id)) > 0 {
			return false
		}
		for i := range l.items {
			if l.items[i].step != nil || changesMembers(&l.items[i].entry) {
				return false
			}
		}
	}
	return true
}

// Others are the members beside one that a state has, and those that its groups' logs add to them, or bring to other addresses. Whether
// that was committed isn't asked.
func Others(self uint64, list *membership.List, tails [][]*raftpb.Entry) ([]*pb.Member, error) {
	others := slices.Clone(list.Members)
	for p, tail := range tails {
		for _, e := range tail {
			it, err := readItem(e)
			if err != nil {
				return nil, fmt.Errorf("entry %d of group %d: %w", e.GetIndex(), p, err)
			}
			for _, c := range it.entry.Commands {
				if c.Kind != command.MemberChange {
					continue
				}
				change, err := membership.Decode(c.Body)
				if err == nil && len(change.Member.GetPeerURLs()) > 0 { // else it is refused, or for no other server
					others = append(others, change.Member)
				}
			}
		}
	}
	slices.SortStableFunc(others, func(a, b *pb.Member) int {
		return cmp.Or(cmp.Compare(a.GetID(), b.GetID()), slices.Compare(a.GetPeerURLs(), b.GetPeerURLs()))
	})
	others = slices.CompactFunc(others, func(a, b *pb.Member) bool { // a change is in the logs of all groups
		return a.GetID() == b.GetID() && slices.Equal(a.GetPeerURLs(), b.GetPeerURLs())
	})
	return slices.DeleteFunc(others, func(m *pb.Member) bool { return m.GetID() == self }), nil
}

func changesMembers(e *command.Entry) bool {
	for _, c := range e.Commands {
		if c.Kind == command.MemberChange {
			return true
		}
	}
	return false
}

// latest is the highest term of group 0 of which a log shows an epoch. Group 0's own log may not
// have heard of it, when the member was lagging there.
func latest(logs []*log) (term uint64) {
	for _, l := range logs {
		term = max(term, l.Epochs.Term)
		for i := range l.items {
			term = max(term, l.items[i].epoch.Term)
		}
	}
	return term
}

// reset is the rendezvous that leaves one member.
func reset(self *pb.Member, logs []*log, origin uint64) (e command.Entry, err error) {
	change := membership.Change{Op: membership.Reset, Member: self}
	body, err := change.Encode()
	if err != nil {
		return e, fmt.Errorf("reset of the members: %w", err)
	}
	e = command.Entry{Origin: origin, Seq: 2, Commands: []command.Command{{Kind: command.MemberChange, User: auth.Own, Body: body}}}
	for p, l := range logs {
		e.Parts |= placement.Of(p)
		e.Stamp = max(e.Stamp, l.Revision+1)
		for i := range l.items {
			if entry := &l.items[i].entry; len(entry.Commands) > 0 {
				e.Stamp = max(e.Stamp, entry.LastStamp()+1)
			}
		}
		for i := range l.missing {
			e.Stamp = max(e.Stamp, l.missing[i].entry.LastStamp()+1)
		}
	}
	if len(logs) == 1 {
		e.Stamp = 0 // revisions follow from the log alone
	}
	return e, nil
}

// append is the repair that adds the barrier of an epoch, what the log lacks, the steps and, if
// it isn't nil, the reset.
func (l *log) append(begin command.Entry, steps []membership.Step, reset *command.Entry) (Repair, error) {
	r := Repair{Dropped: len(l.Tail) - len(l.items), Completed: len(l.missing)}
	next := l.Index + uint64(len(l.items)) + 1
	add := func(kind raftpb.EntryType, data []byte) {
		r.Entries = append(r.Entries, &raftpb.Entry{Type: &kind, Term: new(l.Term + 1), Index: new(next + uint64(len(r.Entries))), Data: data})
	}
	addSteps := func(steps []membership.Step) error {
		for _, s := range steps {
			data, err := proto.Marshal(raftlog.ConfChange(&s))
			if err != nil {
				return fmt.Errorf("encoding a change of a configuration: %w", err)
			}
			add(raftpb.EntryConfChange, data)
		}
		return nil
	}
	add(raftpb.EntryNormal, begin.AppendTo(nil))
	for i := range l.missing {
		if err := addSteps(l.missing[i].steps); err != nil {
			return r, err
		}
		add(raftpb.EntryNormal, l.missing[i].entry.AppendTo(nil))
	}
	if err := addSteps(steps); err != nil {
		return r, err
	}
	if reset != nil {
		add(raftpb.EntryNormal, reset.AppendTo(nil))
	}
	return r, nil
}
