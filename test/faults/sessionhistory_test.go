package faults

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	stoa "github.com/stoa-kv/stoa/client"
)

// story is a history that is right: two sessions, writes of both between each other's.
func story() ([]life, []effect) {
	effects := []effect{{2, "/a", "x1"}, {3, "/b", "x2"}, {4, "/a", "y1"}, {5, "/b", "x3"}, {6, "/c", "x4"}}
	put := func(key, value string, sent, returned, rev int64) step {
		return step{write: true, key: key, value: value, sent: sent, returned: returned, answered: rev > 0, rev: rev}
	}
	x := life{name: "x", steps: []step{
		put("/a", "x1", 1, 10, 2),
		put("/b", "x2", 2, 11, 3),
		{level: stoa.Causal, key: "/a", sent: 3, returned: 12, answered: true, rev: 4, found: map[string]string{"/a": "y1"}},
		put("/b", "x3", 4, 0, 0), // took effect, and wasn't answered
		put("/c", "x4", 5, 0, 0),
		put("/c", "x5", 6, 0, 0), // did not
	}}
	y := life{name: "y", steps: []step{
		{level: stoa.Fast, sent: 1, returned: 2, answered: true, rev: 1},
		put("/a", "y1", 11, 13, 4),
		{level: stoa.Strict, sent: 14, returned: 15, answered: true, rev: 5, found: map[string]string{"/a": "y1", "/b": "x3"}},
		{level: stoa.Causal, token: 6, sent: 15, returned: 20, answered: true, rev: 6, key: "/c", found: map[string]string{"/c": "x4"}},
	}}
	return []life{x, y}, effects
}

// Every checker accepts the right history and reports the broken one.
func TestSessionCheckersSeeViolations(t *testing.T) {
	once := func(l []life, e []effect) error { return checkOnce(l, newRecord(e)) }
	acknowledged := func(l []life, e []effect) error { return checkAcknowledged(l, newRecord(e)) }
	fifo := func(l []life, e []effect) error { return checkFIFO(l, newRecord(e)) }
	prefix := func(l []life, e []effect) error { return checkPrefix(l, newRecord(e)) }
	reads := func(l []life, e []effect) error { return checkReads(l, newRecord(e)) }
	strict := func(l []life, _ []effect) error { return checkStrict(l) }
	for _, check := range []func([]life, []effect) error{once, acknowledged, fifo, prefix, reads, strict} {
		lives, effects := story()
		require.NoError(t, check(lives, effects))
	}
	cases := []struct {
		name   string
		check  func([]life, []effect) error
		breaks func([]life, []effect) []effect
		says   string
	}{
		{"a write is done again after a retry", once, func(_ []life, e []effect) []effect { return append(e, effect{7, "/b", "x3"}) }, "TWICE: request 3 of x"},
		{"an acknowledged write is gone", acknowledged, func(_ []life, e []effect) []effect { return slices.Delete(e, 1, 2) }, "LOST: request 1 of x"},
		{"an answer names another revision", acknowledged, func(l []life, e []effect) []effect { l[1].steps[1].rev = 5; return e }, "LOST: request 1 of y"},
		{"two writes to different keys change places", fifo, func(_ []life, e []effect) []effect { e[3].value, e[4].value = "x4", "x3"; return e }, "ORDER: x sent request 3 before 4"},
		{"one write is lost when the leader dies and the next is not", prefix, func(_ []life, e []effect) []effect { return slices.Delete(e, 3, 4) }, "GAP: request 4 of x took effect, and 3"},
		{"a read lacks the session's own unanswered write", reads, func(l []life, e []effect) []effect {
			l[0].steps[2].rev, l[0].steps[2].found = 2, map[string]string{"/a": "x1"}
			return e
		}, "STALE: causal read 2 of x saw revision 2, and had to see 3"},
		{"a read goes back behind an earlier read", reads, func(l []life, e []effect) []effect { l[1].steps[3].rev, l[1].steps[3].token = 4, 0; return e }, "had to see 5"},
		{"a read ignores a token", reads, func(l []life, e []effect) []effect {
			l[1].steps[3].rev, l[1].steps[3].found = 5, map[string]string{}
			return e
		}, "had to see 6"},
		{"a read mixes two states", reads, func(l []life, e []effect) []effect { l[1].steps[2].found["/b"] = "x2"; return e }, `WRONG: strict read 2 of y found "x2" in /b at revision 5`},
		{"a read misses a key", reads, func(l []life, e []effect) []effect { delete(l[1].steps[2].found, "/b"); return e }, `found "" in /b`},
		{"a read shows a write that was sent after it", reads, func(l []life, e []effect) []effect { l[0].steps[2].rev = 5; return e }, "EARLY: causal read 2 of x"},
		{"a strict read is behind an acknowledged write", strict, func(l []life, e []effect) []effect { l[1].steps[2].rev = 3; return e }, "STALE: strict read 2 of y saw revision 3, and 4"},
	}
	for _, c := range cases {
		lives, effects := story()
		require.ErrorContains(t, c.check(lives, c.breaks(lives, effects)), c.says, c.name)
	}
}

func TestWatchCheckerSeesViolations(t *testing.T) {
	_, effects := story()
	right := func() []sighting {
		saw := []sighting{{effect: effects[0]}, {effect: effects[1]}, {read: true, effect: effect{rev: 3}}}
		for _, e := range effects[2:] {
			saw = append(saw, sighting{effect: e})
		}
		return append(saw, sighting{read: true, effect: effect{rev: 6}})
	}
	require.NoError(t, checkWatches("w", right(), effects, 1, 6))
	require.NoError(t, checkWatches("w", right()[1:], effects, 2, 6))
	for _, c := range []struct {
		name   string
		breaks func([]sighting) []sighting
		says   string
	}{
		{"two watches are not in step", func(s []sighting) []sighting { s[3], s[4] = s[4], s[3]; return s }, "ORDER: w saw the event of revision 4 behind that of 5"},
		{"an event comes behind a read that reflects it", func(s []sighting) []sighting { s[1], s[2] = s[2], s[1]; return s }, "LATE: w saw the event of revision 3"},
		{"an event is left out", func(s []sighting) []sighting { return slices.Delete(s, 3, 4) }, "DIFFERENT"},
		{"the last event is left out", func(s []sighting) []sighting { return slices.Delete(s, 5, 6) }, "MISSED"},
		{"an event comes twice", func(s []sighting) []sighting { return slices.Insert(s, 1, s[0]) }, "DIFFERENT"},
	} {
		require.ErrorContains(t, checkWatches("w", c.breaks(right()), effects, 1, 6), c.says, c.name)
	}
}

func TestReadyCheckerSeesViolations(t *testing.T) {
	require.NoError(t, checkReady("r", []glimpse{{0, []int{0, 1}}, {2, []int{2, 3}}, {2, []int{3, 3}}}))
	require.ErrorContains(t, checkReady("r", []glimpse{{2, []int{2, 1}}}), "UNREADY: look 0 of r found round 2 ready, and data 1 of round 1")
	require.ErrorContains(t, checkReady("r", []glimpse{{2, nil}, {1, nil}}), "BACK")
}
