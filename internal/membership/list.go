package membership

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

// List has the members of a cluster at one place in its logs. It never changes; a change
// makes another.
type List struct {
	// Generation counts the changes that the groups have to follow.
	Generation uint64
	Members    []*pb.Member // ascending by ID
	// Removed are the IDs that members have had. They are never used again.
	Removed []uint64

	// Level is the version of the cluster; see version.go.
	Level version.Level
	// Downgrading holds the level down: the members are to be replaced by those of the
	// release before.
	Downgrading bool
	// Releases are those that members have announced. Below level 2 there are none.
	Releases map[uint64]string
}

// Op is the type of a change.
type Op uint8

// The changes of a list. Their numbers are part of the log's format.
const (
	Add        Op = iota + 1 // a voter
	AddLearner               // a member without a vote
	Promote                  // a learner to a voter
	Remove
	Update // the peer URLs
	// Reset leaves the member as the only one, with a vote, whatever it was before. It is in no
	// request: package salvage puts it into the log.
	Reset
)

func (o Op) String() string {
	return [...]string{Add: "add", AddLearner: "add-learner", Promote: "promote", Remove: "remove", Update: "update", Reset: "reset"}[o]
}

// Change is one change of a list.
type Change struct {
	Op Op
	// Member has the ID, and with Add, AddLearner and Update the peer URLs.
	Member *pb.Member
	// MaxLearners bounds the learners with AddLearner.
	MaxLearners int
}

// Find returns a member, or nil.
func (l *List) Find(id uint64) *pb.Member {
	if i := l.index(id); i >= 0 {
		return l.Members[i]
	}
	return nil
}

func (l *List) index(id uint64) int {
	return slices.IndexFunc(l.Members, func(m *pb.Member) bool { return m.GetID() == id })
}

// Next is the list after a change, or the error for which etcd would refuse it
// (server/etcdserver/api/membership, ValidateConfigurationChange).
func (l *List) Next(c Change) (*List, error) {
	if err := l.check(c); err != nil {
		return nil, err
	}
	next := l.copy()
	next.Generation++
	i := l.index(c.Member.GetID())
	switch c.Op {
	case Add, AddLearner:
		next.Members = append(next.Members, &pb.Member{
			ID: c.Member.GetID(), PeerURLs: c.Member.GetPeerURLs(), IsLearner: c.Op == AddLearner,
		})
		slices.SortFunc(next.Members, byID)
	case Promote:
		next.Members[i] = with(l.Members[i], func(m *pb.Member) { m.IsLearner = false })
	case Remove:
		next.Members = slices.Delete(next.Members, i, i+1)
		next.Removed = append(slices.Clone(l.Removed), c.Member.GetID())
		delete(next.Releases, c.Member.GetID())
	case Update: // which Raft needn't know
		next.Generation = l.Generation
		next.Members[i] = with(l.Members[i], func(m *pb.Member) { m.PeerURLs = c.Member.GetPeerURLs() })
	case Reset:
		next.Members, next.Removed = l.alone(c.Member)
	}
	return next, nil
}

// alone is the list with one member, and the IDs that are no members then.
func (l *List) alone(m *pb.Member) (only []*pb.Member, removed []uint64) {
	if known := l.Find(m.GetID()); known != nil {
		m = known
	}
	removed = without(l.Removed, m.GetID())
	for _, other := range l.Members {
		if other.GetID() != m.GetID() {
			removed = append(removed, other.GetID())
		}
	}
	return []*pb.Member{with(m, func(m *pb.Member) { m.IsLearner = false })}, removed
}

// TookEffect tells from the error with which a change is refused, that may have been decided
// before, that it was.
func (c Change) TookEffect(err error) bool {
	switch c.Op {
	case Add, AddLearner:
		return errors.Is(err, fault.MemberExists) // nobody else has drawn this ID
	case Promote:
		return errors.Is(err, fault.MemberNotLearner)
	case Remove:
		return errors.Is(err, fault.MemberNotFound)
	}
	return false // the URLs of a member can be set twice
}

// Publish is the list with the name and client URLs that a member announces of itself.
func (l *List) Publish(id uint64, name string, clientURLs []string) (*List, error) {
	i := l.index(id)
	if i < 0 {
		return nil, fault.MemberNotFound
	}
	next := l.copy()
	next.Members[i] = with(l.Members[i], func(m *pb.Member) { m.Name, m.ClientURLs = name, clientURLs })
	return next, nil
}

func (l *List) copy() *List {
	next := *l
	next.Members, next.Releases = slices.Clone(l.Members), maps.Clone(l.Releases)
	return &next
}

func (l *List) check(c Change) error {
	known := l.Find(c.Member.GetID())
	if c.Op == Reset {
		return nil
	}
	if slices.Contains(l.Removed, c.Member.GetID()) {
		return fault.MemberNotFound
	}
	switch c.Op {
	case Add, AddLearner:
		if known != nil {
			return fault.MemberExists
		}
		if c.Op == AddLearner && l.learners() >= c.MaxLearners {
			return fault.TooManyLearners
		}
		return l.checkURLs(c.Member)
	case Promote:
		if known != nil && !known.GetIsLearner() {
			return fault.MemberNotLearner
		}
	}
	if known == nil {
		return fault.MemberNotFound
	}
	if c.Op == Update {
		return l.checkURLs(c.Member)
	}
	if c.Op == Remove && !known.GetIsLearner() && len(l.Voters()) == 1 {
		return fault.NotEnoughStarted
	}
	return nil
}

func (l *List) checkURLs(m *pb.Member) error {
	for _, other := range l.Members {
		for _, u := range other.GetPeerURLs() {
			if other.GetID() != m.GetID() && slices.Contains(m.GetPeerURLs(), u) {
				return fault.PeerURLExists
			}
		}
	}
	return nil
}

// Voters are the IDs of the members with a vote, ascending.
func (l *List) Voters() []uint64 { return l.ids(false) }

func (l *List) learners() int { return len(l.ids(true)) }

func (l *List) ids(learners bool) (ids []uint64) {
	for _, m := range l.Members {
		if m.GetIsLearner() == learners {
			ids = append(ids, m.GetID())
		}
	}
	return ids
}

func byID(a, b *pb.Member) int { return cmp.Compare(a.GetID(), b.GetID()) }

// with is a changed copy: members are shared.
func with(m *pb.Member, change func(*pb.Member)) *pb.Member {
	next := &pb.Member{
		ID: m.GetID(), Name: m.GetName(), PeerURLs: m.GetPeerURLs(), ClientURLs: m.GetClientURLs(), IsLearner: m.GetIsLearner(),
	}
	change(next)
	return next
}

// Of is the list that a cluster is bootstrapped with.
func Of(members ...*pb.Member) *List {
	l := &List{Members: slices.Clone(members), Level: version.Oldest}
	slices.SortFunc(l.Members, byID)
	return l
}

func (l *List) String() string {
	return fmt.Sprintf("generation %d of %v, removed %x, version %v", l.Generation, l.Members, l.Removed, l.Level)
}
