package faults

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

func op(call, ret int64, in request, out answer) porcupine.Operation {
	return porcupine.Operation{Input: in, Call: call, Output: out, Return: ret}
}

func put(k int, id int64) request { return request{kind: opPut, id: id, keys: []int{k}} }

func get(k int) request { return request{kind: opGet, keys: []int{k}} }

// The checker detects each wrong history, and accepts the right one beside it.
func TestCheckerFindsViolations(t *testing.T) {
	saw := func(rev int64, k int, v version) answer { return answer{rev: rev, read: map[int]version{k: v}} }
	for name, tc := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"a read of what was written": {[]porcupine.Operation{
			op(1, 2, put(0, 1), answer{rev: 2}), op(3, 4, get(0), saw(2, 0, version{1, 2}))}, true},
		"a stale read": {[]porcupine.Operation{
			op(1, 2, put(0, 1), answer{rev: 2}), op(3, 4, put(0, 2), answer{rev: 3}), op(5, 6, get(0), saw(3, 0, version{1, 2}))}, false},
		"a header that goes back": {[]porcupine.Operation{
			op(1, 2, put(0, 1), answer{rev: 2}), op(3, 4, get(1), saw(1, 1, version{}))}, false},
		"revisions against real time": {[]porcupine.Operation{
			op(1, 2, put(0, 1), answer{rev: 3}), op(3, 4, put(1, 2), answer{rev: 2})}, false},
		"concurrent writes in either order": {[]porcupine.Operation{
			op(1, 4, put(0, 1), answer{rev: 3}), op(2, 3, put(1, 2), answer{rev: 2})}, true},
		"a swap that held": {[]porcupine.Operation{
			op(1, 2, put(0, 1), answer{rev: 2}),
			op(3, 4, request{kind: opSwap, id: 2, keys: []int{0}, mods: map[int]int64{0: 2}}, answer{rev: 3})}, true},
		"a swap that must have failed": {[]porcupine.Operation{
			op(1, 2, put(0, 1), answer{rev: 2}), op(3, 4, put(0, 2), answer{rev: 3}),
			op(5, 6, request{kind: opSwap, id: 3, keys: []int{0}, mods: map[int]int64{0: 2}}, answer{rev: 4})}, false},
		"a swap that failed without reason": {[]porcupine.Operation{
			op(1, 2, put(0, 1), answer{rev: 2}),
			op(3, 4, request{kind: opSwap, id: 2, keys: []int{0}, mods: map[int]int64{0: 2}}, answer{rev: 2, failed: true})}, false},
		"half of a transaction seen": {[]porcupine.Operation{
			op(1, 9, request{kind: opMulti, id: 1, keys: []int{0, 1}}, answer{rev: 2}),
			op(3, 4, request{kind: opGetAll}, answer{rev: 2, read: map[int]version{0: {1, 2}, 1: {}}})}, false},
	} {
		want := porcupine.Illegal
		if tc.ok {
			want = porcupine.Ok
		}
		require.Equal(t, want, check(tc.ops, time.Second), name)
	}
}

// A thousand writes without an answer, which take effect long after they were sent, are ordered at once, and one that
// is misplaced among them is found.
func TestUnansweredWritesAreOrdered(t *testing.T) {
	history := func() (ops []porcupine.Operation) {
		for i := range int64(1000) {
			at := 10 * i
			k := int(i) % keyCount
			ops = append(ops, op(at-500+7*(i%40), math.MaxInt64, put(k, i+1), answer{rev: i + 2}),
				op(at+1, at+8, get(k), answer{rev: i + 2, read: map[int]version{k: {i + 1, i + 2}}}),
				op(at+2, at+9, get(k), answer{rev: i + 2, read: map[int]version{k: {i + 1, i + 2}}}))
		}
		return ops
	}
	require.Equal(t, porcupine.Ok, check(history(), 10*time.Second))
	late := history()
	late[300].Call = late[900].Call
	require.Equal(t, porcupine.Illegal, check(late, 10*time.Second))
	stale := history()
	stale[301].Output = answer{rev: 102, read: map[int]version{4: {95, 96}}}
	require.Equal(t, porcupine.Illegal, check(stale, 10*time.Second))
}

func TestResolve(t *testing.T) {
	h := told{2: {0: 1}, 3: {0: 0, 1: 2}}
	move := request{kind: opMove, id: 2, keys: []int{0, 1}, mods: map[int]int64{0: 2}}
	ops, err := resolve([]porcupine.Operation{
		op(1, 2, put(0, 1), answer{rev: 2}),
		op(3, 4, move, answer{unknown: true}),
		op(5, 6, put(3, 9), answer{unknown: true}),
		op(7, 8, get(0), answer{unknown: true}),
	}, h)
	require.NoError(t, err)
	require.Len(t, ops, 2)
	require.EqualValues(t, 3, ops[1].Output.(answer).rev)

	_, err = resolve([]porcupine.Operation{op(1, 2, put(3, 9), answer{rev: 7})}, h)
	require.ErrorContains(t, err, "LOST")
	_, err = resolve([]porcupine.Operation{op(1, 2, put(0, 1), answer{rev: 5})}, h)
	require.ErrorContains(t, err, "acknowledged at revision 5")
	_, err = resolve([]porcupine.Operation{op(1, 2, request{kind: opMulti, id: 1, keys: []int{0, 4}}, answer{rev: 2})}, h)
	require.ErrorContains(t, err, "HALF")
	_, err = resolve(nil, told{2: {0: 1}, 5: {1: 1}})
	require.ErrorContains(t, err, "twice")
}
