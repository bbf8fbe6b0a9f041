package bootstrap

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

func sameURLs(_ context.Context, a, b []string) bool { return slices.Equal(a, b) }

// shows is a member's list; without members it has none.
func shows(lists map[ID]Cluster) Look {
	return func(_ context.Context, at Member) (Cluster, error) {
		if c, ok := lists[at.ID]; ok {
			return c, nil
		}
		return Cluster{}, errors.New("connection refused")
	}
}

// renumbered is the list of a place's members with other IDs than the settings give.
func renumbered(p *place) Cluster {
	c := Cluster{ID: 70}
	for _, m := range p.self[0].Members {
		m.ID += 10
		m.Name = ""
		c.Members = append(c.Members, m)
	}
	return c
}

func TestAServerFindsItselfByItsPeerURLs(t *testing.T) {
	p := newPlace(t, 3)
	r, self := p.start(2), p.self[2]
	older := Cluster{ID: 70, Members: renumbered(p).Members[:2]}
	other := renumbered(p)
	other.Members[1].PeerURLs = []string{"http://elsewhere"}
	for _, tc := range []struct {
		lists map[ID]Cluster
		want  string
	}{
		{map[ID]Cluster{1: older}, "error validating peerURLs {ClusterID:46 Members:[{ID:b Name: PeerURLs:[http://h1]} {ID:c Name: PeerURLs:[http://h2]}]}: member count is unequal"},
		{map[ID]Cluster{1: other}, "PeerURLs: no match found for existing member (c, [http://elsewhere])"},
		{map[ID]Cluster{1: older, 2: renumbered(p)}, ""}, // the first is behind
		{map[ID]Cluster{1: {}, 2: renumbered(p)}, ""},    // the first is being started
	} {
		found, err := r.Find(t.Context(), self, shows(tc.lists), sameURLs, p.ask)
		if tc.want != "" {
			require.ErrorContains(t, err, tc.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, ID(70), found.Cluster)
		require.Equal(t, ID(13), found.Member)
		require.Equal(t, Member{ID: 11, Name: "s1", PeerURLs: []string{"http://h1"}}, found.Members[0])
	}
	alone := newPlace(t, 1)
	_, err := alone.start(0).Find(t.Context(), alone.self[0], nil, nil, alone.ask)
	require.ErrorContains(t, err, "cannot fetch cluster info from peer urls")
}

// A member was removed, and this server has been added with its URLs. One that hasn't heard of that shows them with
// the ID that is gone.
func TestAServerIsNotTheMemberWhosePlaceItHas(t *testing.T) {
	p := newPlace(t, 3)
	now, before := renumbered(p), renumbered(p)
	before.Members = slices.Clone(before.Members)
	before.Members[2].ID = 99
	looks := 0
	found, err := p.start(2).Find(t.Context(), p.self[2], func(_ context.Context, at Member) (Cluster, error) {
		if looks++; at.ID == 1 && looks <= 2*2 {
			return before, nil
		}
		return now, nil
	}, sameURLs, p.ask)
	require.NoError(t, err)
	require.Equal(t, ID(13), found.Member)
	require.Equal(t, 3*2, looks)
}

// A cluster of two can't begin without the one that takes it for existing.
func TestAnInitialMemberThatTakesTheClusterForExisting(t *testing.T) {
	p := newPlace(t, 2)
	a, b := p.start(0), p.start(1)
	p.self[1].Existing = true
	listed := make(chan Cluster, 1)
	look := func(context.Context, Member) (Cluster, error) {
		select {
		case c := <-listed:
			return c, nil
		default:
			return Cluster{}, errors.New("it has none")
		}
	}
	found := make(chan error, 1)
	go func() {
		self, err := b.Find(t.Context(), p.self[1], look, sameURLs, p.ask)
		if err == nil {
			err = b.Begin(self)
		}
		if err == nil {
			_, err = b.Join(t.Context(), p.ask)
		}
		found <- err
	}()
	_, err := a.Join(t.Context(), p.ask)
	require.NoError(t, err)
	listed <- Cluster{ID: 7, Members: p.self[0].Members}
	select {
	case err := <-found:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "not admitted")
	}
	rec, _ := b.Record()
	require.True(t, rec.Joined)
	rec, _ = a.Record()
	require.False(t, rec.Joined)
}

// grown is a cluster of two with a third member that has joined.
func grown(t *testing.T) *place {
	p := newPlace(t, 3)
	all := p.self[0].Members
	for i := range 2 {
		p.self[i].Members = all[:2]
		p.start(i)
	}
	p.join(0, 1)
	p.self[2].Existing, p.self[2].Partitions = true, 4 // the cluster's number counts
	p.start(2)
	return p
}

func (p *place) add(is ...int) {
	for _, i := range is {
		p.self[i].Members = p.self[2].Members
		require.NoError(p.t, p.regs[ID(i+1)].SetMembers(idsOf(p.self[i].Members), nil, 1))
	}
}

// Members that haven't heard of a new one make it wait.
func TestANewMemberIsAdmittedByThoseThatKnowIt(t *testing.T) {
	p := grown(t)
	p.add(0)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := p.regs[3].Join(ctx, p.ask)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.add(1)
	p.join(2)
	rec, _ := p.regs[3].Record()
	require.True(t, rec.Joined)
	p.stop(2)
	require.NoError(t, p.start(2).Begun())
	p.stop(2)
	rec, in := p.start(2).Record() // before it has received anything
	require.True(t, in)
	require.True(t, rec.Joined)
	require.Len(t, rec.Members, 3)
}

// The number of partitions may have changed since the cluster began, and a member's record been lost
// since: then records have different numbers. A new member gets the state, and needs none.
func TestANewMemberIsAdmittedByRecordsOfDifferentNumbersOfPartitions(t *testing.T) {
	p := grown(t)
	p.add(0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := p.regs[3].Join(ctx, func(ctx context.Context, to Member, q *peerpb.Introduction) (*peerpb.Introduction, error) {
		a, err := p.ask(ctx, to, q)
		if err == nil && to.ID == 2 {
			a.Partitions = 16
		}
		return a, err
	})
	require.NoError(t, err)
	rec, _ := p.regs[3].Record()
	require.True(t, rec.Joined)
}

// What those that vouch have met, the new member refuses too: it may be the one that is
// asked when they are gone.
func TestANewMemberTakesOverWhatTheOthersHaveMet(t *testing.T) {
	p := grown(t)
	require.NoError(t, p.regs[1].Meet(9, Mark{99, 3, 4})) // removed since
	p.add(0, 1)
	p.join(2)
	c := p.regs[3]
	var refused *Refused
	require.ErrorAs(t, c.Meet(9, Mark{98, 1, 1}), &refused)
	require.ErrorAs(t, c.Meet(9, Mark{99, 2, 4}), &refused, "an older copy")
	require.NoError(t, c.Meet(9, Mark{99, 3, 4}))
}

func TestARemovedMemberIsNeverAdmittedAgain(t *testing.T) {
	p := grown(t)
	p.add(0, 1)
	for i := range 2 {
		require.NoError(t, p.regs[ID(i+1)].SetMembers([]ID{1, 2}, []ID{3}, 1))
	}
	p.stop(2)
	p.refused(2, "member 3 (s3) was removed from the cluster", "add it again (member add)", "empty data directory")
	// The list that a restart begins with may be an earlier one.
	p.stop(0)
	p.start(0)
	require.NoError(t, p.regs[1].SetMembers([]ID{1, 2, 3}, nil, 1))
	p.refused(2, "was removed from the cluster")
}
