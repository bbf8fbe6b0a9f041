package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/fault"
)

func TestGrantRefusesAsEtcd(t *testing.T) {
	table := NewTable()
	require.ErrorIs(t, table.Grant(Lease{TTL: 10}), fault.LeaseNotFound)
	require.ErrorIs(t, table.Grant(Lease{ID: 1, TTL: MaxTTL + 1}), fault.LeaseTTLTooLarge)
	require.NoError(t, table.Grant(Lease{ID: 1, TTL: MaxTTL}))
	require.ErrorIs(t, table.Grant(Lease{ID: 1, TTL: 10}), fault.LeaseExists)
	l, _ := table.Get(1)
	require.Equal(t, Lease{ID: 1, TTL: MaxTTL}, l)
	require.ErrorIs(t, table.Revoke(2), fault.LeaseNotFound)
	require.NoError(t, table.Revoke(1))
	require.False(t, table.Has(1))
}

func TestCutHasTheChangesSinceTheLastOne(t *testing.T) {
	table := NewTable()
	table.Load(Lease{ID: 9, TTL: 5}, Lease{ID: 8, TTL: 5, Remaining: 2}, Lease{ID: 7, TTL: 5, Number: 3})
	changed, gone := table.Cut()
	require.Empty(t, changed, "what was loaded is in the backend already")
	require.Empty(t, gone)

	for id := int64(5); id > 0; id-- {
		require.NoError(t, table.Grant(Lease{ID: id, TTL: 10 * id}))
	}
	require.NoError(t, table.Revoke(3)) // granted and revoked between two cuts
	require.NoError(t, table.Revoke(9))
	table.Checkpoint(8, 1)
	table.Checkpoint(6, 1) // isn't there
	changed, gone = table.Cut()
	require.Equal(t, []Lease{{ID: 1, TTL: 10}, {ID: 2, TTL: 20}, {ID: 4, TTL: 40}, {ID: 5, TTL: 50}, {ID: 8, TTL: 5, Remaining: 1}}, changed)
	require.Equal(t, []int64{3, 9}, gone)

	table.Checkpoint(8, 1) // changes nothing
	changed, gone = table.Cut()
	require.Empty(t, changed)
	require.Empty(t, gone)
	require.Equal(t, 6, table.Len())
	require.Len(t, table.List(), 6)

	table.Unnumber()
	changed, gone = table.Cut()
	require.Equal(t, []Lease{{ID: 7, TTL: 5}}, changed)
	require.Empty(t, gone)
}
