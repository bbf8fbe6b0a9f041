package command

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBarriersAreReadBack(t *testing.T) {
	b := Barrier(7, 3, 9)
	read, err := Decode(b.AppendTo(nil))
	require.NoError(t, err)
	epoch, ok := read.Opens()
	require.True(t, ok)
	require.Equal(t, Epoch{Term: 7, Origin: 3, Seq: 9}, epoch)
	_, ok = (&Entry{}).Opens()
	require.False(t, ok, "Raft's own entry is no barrier")
}

func TestEpochsAreInTheOrderOfTerms(t *testing.T) {
	first, second, third := Epoch{Term: 7, Origin: 3, Seq: 9}, Epoch{Term: 7, Origin: 3, Seq: 12}, Epoch{Term: 8, Origin: 1, Seq: 1}
	require.True(t, first.Before(second) && second.Before(third) && first.Before(third))
	require.False(t, second.Before(first) || third.Before(second) || first.Before(first))
	// In the logs of earlier versions the order isn't known.
	require.False(t, Epoch{Origin: 1, Seq: 1}.Before(Epoch{Origin: 2, Seq: 2}))
}

func TestAnEpochKnowsItsFirstStamp(t *testing.T) {
	epoch := Epoch{Term: 7, Origin: 3, Seq: 9}
	put := []Command{{Kind: Put}}
	old := Entry{Stamp: 4, Origin: 2, Seq: 30, Commands: put} // completed in this epoch
	own := Entry{Stamp: 6, Origin: 3, Seq: 10, Commands: put}
	require.Zero(t, epoch.Note(&old).First)
	require.EqualValues(t, 6, epoch.Note(&own).First)
	require.EqualValues(t, 6, own.LastStamp())
	require.EqualValues(t, 5, (&Entry{Stamp: 6, Commands: []Command{{Kind: LeaseGrant}}}).LastStamp())
}
