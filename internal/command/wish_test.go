package command

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/placement"
)

func TestWishesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Wish{
			Op:        WishOp(rapid.IntRange(int(MoveSlot), int(Drain)).Draw(t, "op")),
			Key:       rapid.String().Draw(t, "key"),
			Partition: rapid.IntRange(0, placement.MaxPartitions-1).Draw(t, "partition"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "slots") {
			w.Slots = append(w.Slots, placement.Assignment{
				Slot:      rapid.IntRange(0, placement.Slots-1).Draw(t, "slot"),
				Partition: rapid.IntRange(0, placement.MaxPartitions-1).Draw(t, "to"),
			})
		}
		b := w.AppendTo(nil)
		back, err := DecodeWish(b)
		require.NoError(t, err)
		require.Equal(t, w, back)
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		_, err = DecodeWish(b[:cut])
		require.Error(t, err)
		_, _ = DecodeWish(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) // without a panic
	})
	for what, w := range map[string]Wish{
		"unknown kind 0":         {},
		"unknown kind 6":         {Op: Drain + 1},
		"partition 64":           {Op: Pin, Partition: placement.MaxPartitions},
		"slot 1024 in partition": {Op: Assign, Slots: []placement.Assignment{{Slot: placement.Slots}}},
	} {
		_, err := DecodeWish(w.AppendTo(nil))
		require.ErrorContains(t, err, what)
	}
}
