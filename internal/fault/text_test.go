package fault

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestTextsOfClientsAreReadable(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"it's 100 % „fine“ \\x00":        "it's 100 % „fine“ \\x00",
		"\x1b[2Jgone\x00\x7f":            `\x1b[2Jgone\x00\x7f`,
		"two\nlines\tand\rone":           `two\nlines\tand\x0done`,
		"bad \xff\xfe bytes":             `bad \xff\xfe bytes`,
		"c1 \u0085, bidi \u202e, \ufeff": `c1 \u0085, bidi \u202e, \ufeff`,
		"a real \ufffd":                  `a real \ufffd`,
	} {
		got := ExtensionFailed.With(text).Error()
		require.Equal(t, want, got)
		require.Equal(t, want, Readable(got), "it goes from server to server as it is")
	}
}

// The beginning says where, the end says why.
func TestLongTextsKeepTheirReason(t *testing.T) {
	for _, filling := range []string{"x", "\x00", "ä", "\xff", "日本"} {
		got := BadExtension.With("stoa: /em/" + strings.Repeat(filling, 3000) + " can't be put").Error()
		require.LessOrEqual(t, len(got), maxText)
		require.Greater(t, len(got), maxText-16)
		require.True(t, utf8.ValidString(got))
		require.True(t, strings.HasPrefix(got, "stoa: /em/"))
		require.True(t, strings.HasSuffix(got, " can't be put"))
		require.Equal(t, got, Readable(got))
	}
}
