package commands

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/client/mirror"
)

func FuzzDecode(f *testing.F) {
	f.Add(Encode([]Command{{put(0, "a", "1"), del(2, "b")}, {}, {put(1, "c", "")}}))
	f.Fuzz(func(t *testing.T, value []byte) {
		batch, err := Decode(value, 3)
		if err != nil {
			return
		}
		again, err := Decode(Encode(batch), 3)
		require.NoError(t, err)
		require.Equal(t, len(batch), len(again))
		require.Equal(t, Encode(batch), Encode(again))
	})
}

func put(cluster int, key, value string) Op {
	return Op{cluster, mirror.Op{Key: []byte(key), Value: []byte(value)}}
}

func del(cluster int, key string) Op {
	return Op{cluster, mirror.Op{Key: []byte(key), Delete: true}}
}

func TestDecodeRefuses(t *testing.T) {
	whole := Encode([]Command{{put(2, "key", "value"), del(0, "k")}})
	for n := range whole {
		if n == 1 {
			continue // an empty batch
		}
		_, err := Decode(whole[:n], 3)
		require.ErrorIs(t, err, ErrForm, "%d bytes", n)
	}
	_, err := Decode(whole, 2)
	require.ErrorIs(t, err, ErrForm, "a cluster that the set doesn't have")
	_, err = Decode(append([]byte{2}, whole[1:]...), 3)
	require.ErrorIs(t, err, ErrForm, "a later form")
	_, err = Decode(Encode([]Command{{put(0, "", "")}}), 3)
	require.ErrorIs(t, err, ErrForm, "an empty key")
}

func TestCommandIsTooLarge(t *testing.T) {
	l := mirror.Limits{Ops: 2, Bytes: 40}
	require.NoError(t, Command{put(0, "a", ""), put(0, "b", ""), put(1, "a", ""), put(1, "b", "")}.Check(l))
	require.ErrorIs(t, Command{put(0, "a", ""), put(0, "b", ""), put(0, "c", "")}.Check(l), ErrTooLarge)
	require.ErrorIs(t, Command{put(0, "a", string(make([]byte, 40)))}.Check(l), ErrTooLarge)
	for _, op := range []Op{put(1, "", "1"), del(1, "")} { // which no executor could read
		c := Command{put(0, "a", ""), op}
		require.ErrorIs(t, c.Check(l), ErrNoKey)
		_, err := Decode(Encode([]Command{c}), 2)
		require.ErrorIs(t, err, ErrForm)
	}
}

// A carrier goes on at the mark of the one before, also in the middle of an entry, and knows the
// mark of another queue.
func TestCarrierGoesOn(t *testing.T) {
	cfg := CarrierConfig{Limits: mirror.Limits{Ops: 2, Bytes: 1000}, Owner: "first", Queue: 7, Revision: 20}
	entries := []Entry{
		{10, "x", 1, []Command{{put(0, "a", "1")}, {put(1, "a", "2")}}},
		{12, "y", 1, []Command{{put(0, "a", "3")}, {put(0, "b", "4"), del(0, "c")}, {put(0, "d", "5")}}},
		{15, "x", 2, []Command{{put(1, "e", "6")}}},
	}
	c, err := NewCarrier(cfg)
	require.NoError(t, err)
	c.Add(entries...)
	txn, ok := c.Next()
	require.True(t, ok)
	require.Equal(t, `{"queue":7,"entry":12,"part":1,"owner":"first","number":1}`, string(txn.Mark))
	require.Equal(t, []mirror.Op{{Key: []byte("a"), Value: []byte("3")}}, txn.Ops)
	c.Wrote(100)
	passed, at := c.Passed()
	require.EqualValues(t, []int64{10, 100}, []int64{passed, at})

	cfg.Owner, cfg.Mark, cfg.At = "second", txn.Mark, 100
	c, err = NewCarrier(cfg)
	require.NoError(t, err)
	c.Add(entries...)
	txn, _ = c.Next()
	require.Equal(t, `{"queue":7,"entry":12,"part":2,"owner":"second","number":1}`, string(txn.Mark))
	require.Len(t, txn.Ops, 2)
	c.Wrote(101)
	txn, _ = c.Next()
	require.Equal(t, `{"queue":7,"entry":15,"owner":"second","number":2}`, string(txn.Mark))
	c.Wrote(102)
	passed, _ = c.Passed()
	require.EqualValues(t, 15, passed)
	require.Zero(t, c.Waiting())

	cfg.Revision = 11
	_, err = NewCarrier(cfg)
	require.ErrorIs(t, err, ErrOtherQueue, "the queue's cluster was restored")
	cfg.Revision, cfg.Queue = 20, 8
	_, err = NewCarrier(cfg)
	require.ErrorIs(t, err, ErrOtherQueue)
}
