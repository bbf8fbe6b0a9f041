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

func TestEarlierEpochsAreKeptForThoseThatAreToCome(t *testing.T) {
	first, second, third := Epoch{Term: 2, Origin: 3, Seq: 9, First: 4}, Epoch{Term: 3, Origin: 4, Seq: 1, First: 6}, Epoch{Term: 4, Origin: 3, Seq: 70}
	s := Epochs{Epoch: first}.Open(second)
	require.Equal(t, Epochs{second, []Epoch{first}}, s)
	s = s.Open(third)
	require.Equal(t, Epochs{third, []Epoch{first, second}}, s)
	require.Equal(t, s.Before, s.Open(Epoch{Term: 5}).Before, "nothing was stamped in the third")

	groups := []Epochs{s, {Epoch: first}}
	Trim(groups)
	require.Equal(t, []Epochs{{third, []Epoch{second}}, {Epoch: first}}, groups)
	require.Equal(t, []Epoch{first, second}, s.Before, "a cut has this one")
	groups[1] = groups[1].Open(second)
	Trim(groups)
	require.Empty(t, groups[0].Before)
	require.Empty(t, groups[1].Before)
	// A group that has only just begun may come to any.
	groups = []Epochs{s, {}}
	Trim(groups)
	require.Equal(t, s.Before, groups[0].Before)

	for term := range uint64(2 * maxBefore) {
		s = s.Open(Epoch{Term: 5 + term, Origin: 9, Seq: 1, First: int64(8 + term)})
	}
	require.Len(t, s.Before, maxBefore)
	require.Equal(t, first, s.Before[0], "the first that comes says the most")
}
