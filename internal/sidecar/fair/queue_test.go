package fair

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueue(t *testing.T) {
	var q Queue[string]
	for _, item := range []string{"a1", "a2", "a3", "a4", "b1", "b2", "c1", "d1"} {
		q.Push(item[0], item)
	}
	require.Equal(t, 8, q.Len())
	require.True(t, q.Remove(byte('a'), "a2"))
	require.False(t, q.Remove(byte('a'), "a2"), "it has left")
	require.False(t, q.Remove(byte('e'), "a1"), "it is of another")
	require.True(t, q.Remove(byte('d'), "d1"))
	unwanted := map[string]bool{"a1": true, "b1": true, "c1": true}
	var got []string
	for {
		item, ok := q.Pop(func(item string) bool { return !unwanted[item] })
		if !ok {
			break
		}
		if got = append(got, item); item == "a3" {
			q.Push(byte('c'), "c2")
		}
	}
	require.Equal(t, []string{"a3", "b2", "c2", "a4"}, got, "what is not wanted costs no turn")
	require.Zero(t, q.Len())
	require.False(t, q.Remove(byte('a'), "a4"))
}
