package fault

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxText keeps a text that quotes a client's request within the header in which it
// is returned.
const maxText = 2048

// Readable is a text of any origin as it may stand in an error, in the state of a replica
// or on a terminal: control characters, those that turn the direction of writing, and
// bytes that are no UTF-8 are written as Go escapes them, and of a long text the beginning
// and the end are kept. The same on every server, regardless of the Unicode version it is
// built with; Readable is idempotent.
func Readable(text string) string {
	if strings.IndexFunc(text, unreadable) >= 0 {
		text = escaped(text)
	}
	return elided(text)
}

// unreadable says that a rune is escaped. utf8.RuneError stands for a bad byte.
func unreadable(r rune) bool {
	switch {
	case r < ' ', 0x7f <= r && r < 0xa0, r == utf8.RuneError, r == '\ufeff':
		return true
	case r == '\u200e', r == '\u200f', '\u2028' <= r && r <= '\u202e', '\u2066' <= r && r <= '\u2069':
		return true
	}
	return false
}

func escaped(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case !unreadable(r):
			b.WriteString(text[:size])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		text = text[size:]
	}
	return b.String()
}

// elided leaves out the middle of a text that is too long: the cause tends to be at its
// end, and the place at its beginning.
func elided(text string) string {
	if len(text) <= maxText {
		return text
	}
	const mark = " … "
	head, tail := maxText/2, len(text)-(maxText/2-len(mark))
	for !utf8.RuneStart(text[head]) {
		head--
	}
	for !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + mark + text[tail:]
}
