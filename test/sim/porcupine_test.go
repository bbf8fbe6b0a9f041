package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// register is one key, read and written.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(s, in, _ any) (bool, any) {
		a := in.(access)
		return a.write || a.value == s.(string), a.value
	},
}

func TestInOrder(t *testing.T) {
	put := func(call, end int64, value string) porcupine.Operation {
		return porcupine.Operation{Input: access{write: true, value: value}, Call: call, Return: end}
	}
	get := func(call, end int64, value string) porcupine.Operation {
		return porcupine.Operation{Input: access{value: value}, Call: call, Return: end}
	}
	for _, tc := range []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"nothing", nil, true},
		{"one after the other", []porcupine.Operation{put(1, 2, "a"), get(3, 4, "a")}, true},
		{"at once", []porcupine.Operation{put(2, 5, "a"), get(1, 2, "a")}, true},
		{"the answer is wrong", []porcupine.Operation{put(1, 2, "a"), get(3, 4, "b")}, false},
		{"the second had ended before the first began", []porcupine.Operation{put(3, 4, "a"), get(1, 2, "a")}, false},
		{"the third had ended before the first began", []porcupine.Operation{put(3, 4, "a"), put(2, 9, "b"), get(1, 2, "b")}, false},
	} {
		require.Equal(t, tc.want, inOrder(register, tc.ops), tc.name)
	}
}

// Where requests can have come in the order in which they are given, porcupine finds an order, too.
func TestInOrderIsAnOrderOfPorcupines(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	in := 0
	for range 3000 {
		var ops []porcupine.Operation
		for i := range 6 {
			call := int64(i) + rng.Int64N(4)
			a := access{write: rng.IntN(2) == 0, value: pick(&loop{rng: rng}, []string{"", "a"})}
			ops = append(ops, porcupine.Operation{Input: a, Call: call, Return: call + rng.Int64N(4)})
		}
		if inOrder(register, ops) {
			in++
			require.True(t, porcupine.CheckOperations(register, ops), "%v", ops)
		}
	}
	require.Greater(t, in, 50)
}
