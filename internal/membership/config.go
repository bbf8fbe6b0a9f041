package membership

import (
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Config is the Raft configuration of one group at one index of its log.
type Config struct {
	Voters     []uint64 `json:"voters,omitempty"` // ascending
	Learners   []uint64 `json:"learners,omitempty"`
	Generation uint64   `json:"generation,omitempty"` // of the list that it has reached
	// Steps counts the changes. A change that was proposed twice has the number of one
	// that has been made, and is passed over.
	Steps uint64 `json:"steps,omitempty"`
	// Unsealed is the voter that the last step has added or removed, if that needs a seal, which is the next
	// step. (Its name in files is of releases that sealed removals alone.)
	Unsealed uint64 `json:"leaving,omitempty"`
}

// Step is one change of a configuration, as it stands in a group's log: of one server, so
// that the quorums before and after have a member in common (Raft, §4.1 of Ongaro's
// dissertation). Neighbouring configurations overlap in each group by itself, and groups
// share no quorum, so there is no need for joint ones.
type Step struct {
	Kind       StepKind
	ID         uint64
	Number     uint64 // the configuration's Steps before it
	Generation uint64 // that is reached with it
}

// StepKind is the type of a step.
type StepKind uint8

// The steps.
const (
	AddVoter StepKind = iota + 1 // a learner or a server that was neither
	AddNonvoter
	RemoveServer
)

// OfIDs is a list of voters of which nothing is known but their IDs.
func OfIDs(ids ...uint64) *List {
	var members []*pb.Member
	for _, id := range ids {
		members = append(members, &pb.Member{ID: id})
	}
	return Of(members...)
}

// Initial is the configuration of each group of a cluster that begins with a list.
func Initial(l *List) *Config {
	return &Config{Voters: l.Voters(), Learners: l.ids(true), Generation: l.Generation}
}

// StepOf returns what a group has to do to follow the list, if anything.
func StepOf(l *List, c *Config) (s Step, needed bool) {
	if c.Generation == l.Generation {
		return c.seal()
	}
	s.Number, s.Generation = c.Steps, c.Generation
	target := Initial(l)
	switch {
	case first(target.Voters, c.Voters, &s.ID):
		s.Kind = AddVoter
	case first(target.Learners, c.Learners, &s.ID):
		s.Kind = AddNonvoter
	case first(c.servers(), target.servers(), &s.ID):
		s.Kind = RemoveServer
	default:
		return Step{}, false
	}
	if next, _ := c.Next(s); slices.Equal(next.Voters, target.Voters) && slices.Equal(next.Learners, target.Learners) {
		s.Generation = l.Generation
	}
	return s, true
}

// seal is the step behind a change of the voters that were an even number. It changes nothing: that it
// stands in a log says that the change in front of it is committed, also if the commit index that said
// so is lost (package raftlog). Once it is committed itself, a majority of the present voters has it, and
// whoever they elect does. See doc.go.
func (c *Config) seal() (s Step, needed bool) {
	if c.Unsealed == 0 {
		return Step{}, false
	}
	return Step{Kind: AddVoter, ID: c.Voters[0], Number: c.Steps, Generation: c.Generation}, true
}

// first finds the first of list that isn't in other.
func first(list, other []uint64, found *uint64) bool {
	for _, id := range list {
		if !slices.Contains(other, id) {
			*found = id
			return true
		}
	}
	return false
}

// Next is the configuration after a step; not ok if the step has been made before.
func (c *Config) Next(s Step) (next *Config, ok bool) {
	if s.Number != c.Steps {
		return c, false
	}
	next = &Config{
		Voters: without(c.Voters, s.ID), Learners: without(c.Learners, s.ID),
		Generation: s.Generation, Steps: c.Steps + 1,
	}
	switch s.Kind {
	case AddVoter:
		next.Voters = ascending(next.Voters, s.ID)
	case AddNonvoter:
		next.Learners = ascending(next.Learners, s.ID)
	}
	if len(next.Voters) != len(c.Voters) && len(c.Voters)%2 == 0 {
		next.Unsealed = s.ID
	}
	return next, true
}

func without(ids []uint64, id uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(ids), func(i uint64) bool { return i == id })
}

func ascending(ids []uint64, id uint64) []uint64 {
	ids = append(ids, id)
	slices.Sort(ids)
	return ids
}

func (c *Config) servers() []uint64 { return append(slices.Clone(c.Voters), c.Learners...) }

// Has reports whether a server is in the configuration, with a vote or without.
func (c *Config) Has(id uint64) bool {
	return slices.Contains(c.Voters, id) || slices.Contains(c.Learners, id)
}

// Needs reports whether a server whose vote the last step took may still be needed to elect a leader: until that
// is sealed. Those that lost their power, and with it the commit index, count on its vote, and its log may be the longest.
func (c *Config) Needs(id uint64) bool { return c.Unsealed == id && !slices.Contains(c.Voters, id) }

// HasAll reports whether all servers of another configuration are in this one.
func (c *Config) HasAll(other *Config) bool {
	return !slices.ContainsFunc(other.servers(), func(id uint64) bool { return !c.Has(id) })
}

// Quorum reports whether those for which has is true are a majority of the voters.
func (c *Config) Quorum(has func(id uint64) bool) bool {
	n := 0
	for _, id := range c.Voters {
		if has(id) {
			n++
		}
	}
	return n > len(c.Voters)/2
}

// Alone returns the steps after which a server is the only one of the configuration. They reach
// no generation: a list that has no other member follows them.
func (c *Config) Alone(id uint64) (steps []Step) {
	step := func(kind StepKind, of uint64) {
		s := Step{Kind: kind, ID: of, Number: c.Steps, Generation: c.Generation}
		c, _ = c.Next(s)
		steps = append(steps, s)
	}
	if !slices.Contains(c.Voters, id) {
		step(AddVoter, id)
	}
	for _, other := range c.servers() {
		if other != id {
			step(RemoveServer, other)
		}
	}
	return steps
}

// Following returns the steps after which a group's configuration is another group's, which has followed a later list.
func (c *Config) Following(other *Config) (steps []Step) {
	var members []*pb.Member
	for _, id := range other.servers() {
		members = append(members, &pb.Member{ID: id, IsLearner: slices.Contains(other.Learners, id)})
	}
	l := Of(members...)
	l.Generation = other.Generation
	for c.Generation < l.Generation {
		s, needed := StepOf(l, c)
		if !needed {
			break
		}
		c, _ = c.Next(s)
		steps = append(steps, s)
	}
	return steps
}

// Reached is the configuration in a list of another generation that asks for nothing else.
func (c *Config) Reached(generation uint64) *Config {
	next := *c
	next.Generation = generation
	return &next
}

// Due is a step that a group may propose now.
type Due struct {
	Group int
	Step
}

// DueSteps are the steps that may be proposed now, ascending by group, so that M1 holds:
// group 0 is the last to get a voter and the first to let one go. Seals wait for no other group.
func DueSteps(l *List, groups []*Config) (due []Due) {
	for p, c := range groups {
		if s, needed := StepOf(l, c); needed {
			due = append(due, Due{p, s})
		}
	}
	if len(due) == 0 || due[0].Group != 0 || len(due) == 1 || groups[0].Generation == l.Generation {
		return due
	}
	if due[0].Kind == RemoveServer {
		return due[:1]
	}
	if slices.ContainsFunc(due[1:], func(d Due) bool { return groups[d.Group].Generation != l.Generation }) {
		return due[1:]
	}
	return due
}

// Settled reports whether all groups have followed the list.
func Settled(l *List, groups []*Config) bool {
	for _, c := range groups {
		if c.Generation != l.Generation {
			return false
		}
	}
	return true
}

// Sealed reports whether all groups have followed the list, and none will need more servers than
// a majority of the list's voters, whatever these forget or lose.
func Sealed(l *List, groups []*Config) bool {
	return Settled(l, groups) && !slices.ContainsFunc(groups, func(c *Config) bool { return c.Unsealed != 0 })
}

func (s *Step) String() string {
	return fmt.Sprintf("%s %x", [...]string{AddVoter: "add voter", AddNonvoter: "add learner", RemoveServer: "remove"}[s.Kind], s.ID)
}
