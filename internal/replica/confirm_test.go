package replica

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/membership"

	"github.com/stoa-kv/stoa/internal/placement"
)

// leading returns a story in which server 1 stamps and all servers know.
func leading(t *testing.T, servers int) *story {
	s := newStory(t, servers)
	s.elect(s.replicas[0])
	return s
}

// ask has server 2 ask for a read point and returns the messages sent.
func ask(t *testing.T, s *story) (packets int, confirms bool) {
	done := false
	s.replicas[1].ReadPoint(placement.Of(0), func(err error) {
		require.NoError(t, err)
		done = true
	})
	for len(s.wire) > 0 {
		for _, e := range s.wire {
			packets++
			confirms = confirms || e.packet.Confirm != nil
		}
		s.carry(true, 0, 0, -1)
	}
	require.True(t, done)
	return packets, confirms
}

func TestTheAskersConfirmationCounts(t *testing.T) {
	packets, confirms := ask(t, leading(t, 3))
	require.Equal(t, 2, packets, "a question and its answer")
	require.False(t, confirms)
}

func TestTheAskersConfirmationIsNotAMajority(t *testing.T) {
	_, confirms := ask(t, leading(t, 5))
	require.True(t, confirms)
}

// Another server may lead in a later term, and have acknowledged writes unknown
// to this leader.
func TestAnAskerThatKnowsALaterTermDoesNotConfirm(t *testing.T) {
	for group := range 2 {
		s := leading(t, 3)
		s.replicas[1].groups[group].term.Add(1)
		_, confirms := ask(t, s)
		require.True(t, confirms)
	}
}

func TestConfirmationsThatCount(t *testing.T) {
	s := leading(t, 3)
	l := s.replicas[0]
	e := l.lead.published.Load()
	terms := e.terms
	require.True(t, l.conf.confirmedBy(e, confirmation{2, terms}))
	require.False(t, l.conf.confirmedBy(e, confirmation{}), "no server's")
	require.False(t, l.conf.confirmedBy(e, confirmation{1, terms}), "the leader's own, twice")
	require.False(t, l.conf.confirmedBy(e, confirmation{9, terms}), "not a voter's")
	require.False(t, l.conf.confirmedBy(e, confirmation{2, terms[:1]}), "not about all groups")
	require.False(t, l.conf.confirmedBy(e, confirmation{2, nil}), "an older server's, which says nothing")
}

// Groups that follow a change of members have different voters for a while, and a learner's
// answer counts nowhere: a majority of the members may be a majority in no group.
func TestConfirmationsAreCountedInEachGroup(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[0]
	list := membership.OfIDs(1, 2, 3, 4)
	grown, old := membership.Initial(list), &membership.Config{Voters: []uint64{1, 2, 3}, Learners: []uint64{4, 5}}
	r.cfg.Machine.LoadMembership(list, []*membership.Config{old, grown})
	has := func(ids ...uint64) bool { return r.quorum(func(id uint64) bool { return slices.Contains(ids, id) }) }
	require.False(t, has(1, 2), "group 1 has four voters")
	require.False(t, has(1, 4, 5), "learners")
	require.False(t, has(1, 2, 5))
	require.True(t, has(1, 2, 3))
	require.True(t, has(1, 2, 4))
	require.False(t, r.alone())

	r.cfg.Machine.LoadMembership(list, []*membership.Config{{Voters: []uint64{1}, Learners: []uint64{2}}, {Voters: []uint64{1}}})
	require.True(t, r.alone())
	r.cfg.Machine.LoadMembership(list, []*membership.Config{{Voters: []uint64{1}}, {Voters: []uint64{1, 2}}})
	require.False(t, r.alone())
}

// All who are left have answered before the groups have let the others go: nobody is asked any more, and no
// answer comes that could decide.
func TestAConfirmationOfFewerVoters(t *testing.T) {
	s := leading(t, 3)
	l := s.replicas[0]
	list := membership.OfIDs(1, 2, 3, 4)
	l.cfg.Machine.LoadMembership(list, nil)
	answers := 0
	read := func() {
		l.ReadPoint(placement.Of(0), func(err error) {
			require.NoError(t, err)
			answers++
		})
	}
	read()
	round := l.conf.current.ask.Round
	l.conf.acked(2, &ConfirmAck{Round: round, OK: true})
	require.Zero(t, answers, "two of four")
	read()
	l.cfg.Machine.LoadMembership(membership.OfIDs(1, 2), nil)
	l.calls.now.Add(2)
	l.conf.tick()
	require.Equal(t, 1, answers)
	require.Equal(t, round+1, l.conf.current.ask.Round, "the other has come behind the question")
}
