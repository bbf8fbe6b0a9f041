package overlay

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every block and clause is noted, the body of a switch isn't, and lines stay.
func TestNoted(t *testing.T) {
	source := `package p

import "fmt"

func f(n int) int {
	switch n {
	case 1:
		return 2
	default:
	}
	for range n {
		fmt.Println(n)
	}
	if n > 2 {
		return func() int { return 3 }()
	}
	select {}
}
`
	with, err := noted("p.go", source)
	require.NoError(t, err)
	numbers := regexp.MustCompile(`simcover\.At\(\d+\);`)
	require.Equal(t, strings.Count(source, "\n")+2, strings.Count(with, "\n"))
	for line, wants := range map[string]int{"func f(n int) int {": 1, "switch n {": 0, "case 1:": 1, "default:": 1, "for range n {": 1, "if n > 2 {": 1, "return func": 1, "select {}": 0} {
		at := strings.Index(with, line)
		require.Positive(t, at, line)
		rest, _, _ := strings.Cut(with[at:], "\n")
		require.Len(t, numbers.FindAllString(rest, -1), wants, line)
	}
	all := numbers.FindAllString(with, -1)
	seen := map[string]bool{}
	for _, n := range all {
		require.False(t, seen[n], "two blocks have the number %s", n)
		seen[n] = true
	}
}
