package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/plot"
)

// A run replaces what it measured, in its place, and keeps the rest as it is.
func TestDocumentKeepsResultsThatWereNotRepeated(t *testing.T) {
	first := merge("", "img", []section{
		{title: "Sessions", text: "one", rows: [][]string{{"a", "b"}, {"1", "2"}}, notes: []string{"note"}},
		{title: "Isolation", text: "other"},
	})
	require.Equal(t, preamble+"\n## Sessions\n\none\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nnote\n\n## Isolation\n\nother\n", first)
	second := merge(first, "img", []section{
		{title: "Unary calls", text: "new"},
		{title: "Isolation", text: "again", charts: map[string]plot.Chart{"x.svg": {Title: "X"}}},
	})
	require.Equal(t, 1, strings.Count(second, "## Isolation"))
	require.Contains(t, second, "again\n\n![X](img/x.svg)")
	require.Contains(t, second, "| 1 | 2 |\n\nnote\n")
	require.Less(t, strings.Index(second, "## Unary calls"), strings.Index(second, "## Sessions"))
	require.Less(t, strings.Index(second, "## Sessions"), strings.Index(second, "## Isolation"))
	require.Equal(t, second, merge(second, "img", nil), "nothing measured, nothing changed")
}

// The list of goals is that of all sections, those of earlier runs included, with what
// fell short first.
func TestDocumentGathersGoals(t *testing.T) {
	first := merge("", "img", []section{{title: "Sessions", text: "one", rows: [][]string{{"x", "goal"}, {"1", "met"}},
		verdicts: []verdict{{goal: "a", asked: "≥ 1x", measured: "2x"}, {goal: "b", asked: "≥ 1x", measured: "0.5x", missed: true}}}})
	require.Contains(t, first, "## Goals\n\n1 met, 1 missed")
	second := merge(first, "img", []section{{title: "Unary calls", text: "new", verdicts: []verdict{{goal: "c", asked: "≤ 1x", measured: "1x"}}}})
	require.Contains(t, second, "2 met, 1 missed")
	require.Contains(t, second, "| b | ≥ 1x | 0.5x | missed |\n| c | ≤ 1x | 1x | met |\n| a | ≥ 1x | 2x | met |\n\n## Unary calls")
	require.Equal(t, second, merge(second, "img", nil))
}
