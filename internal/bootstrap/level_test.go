package bootstrap

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/version"
)

// asRelease is ask, from a server of a release that knows other levels.
func (p *place) asRelease(k version.Known) Ask {
	return func(ctx context.Context, to Member, q *peerpb.Introduction) (*peerpb.Introduction, error) {
		q.OldestLevel, q.NewestLevel = uint64(k.Oldest), uint64(k.Newest)
		return p.ask(ctx, to, q)
	}
}

func TestAServerOfAnEarlierReleaseDoesNotJoinALaterCluster(t *testing.T) {
	p := grown(t)
	for i := range 2 {
		require.NoError(t, p.regs[ID(i+1)].SetMembers(idsOf(p.self[2].Members), nil, 2))
	}
	r := p.regs[3]
	for _, known := range []version.Known{{}, version.First} {
		missing, err := r.askAll(t.Context(), p.asRelease(known))
		require.NoError(t, err)
		require.Len(t, missing, 2)
		require.Contains(t, missing[0], "doesn't know")
	}
	require.NotZero(t, p.regs[1].rec.Admitted)
	require.Empty(t, r.vouched)
	_, err := r.askAll(t.Context(), p.ask)
	require.NoError(t, err)
	require.Len(t, r.vouched, 2)
}

// The server itself knows what it can be a member of, and ends.
func TestAServerDoesNotJoinAClusterWhoseVersionItDoesNotKnow(t *testing.T) {
	p := grown(t)
	r := p.regs[3]
	later := func(ctx context.Context, to Member, q *peerpb.Introduction) (*peerpb.Introduction, error) {
		a, err := p.ask(ctx, to, q)
		if err == nil {
			a.ClusterLevel, a.Refusal = uint64(version.Newest)+1, peerpb.Refusal_OTHER_VERSION
		}
		return a, err
	}
	_, err := r.Join(t.Context(), later)
	require.ErrorContains(t, err, "stoa "+version.Stoa+" can't be member 3 of the cluster of s") // s1 or s2
	require.ErrorContains(t, err, ": it is too old: the cluster's version is level 8, and it knows none above 0.7.0. Start it with stoa level 8 or later")
}
