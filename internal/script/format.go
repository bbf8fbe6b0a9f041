package script

import (
	"math/bits"
	"strconv"
	"strings"
)

const maxWidth = 100

func decimals(n int64) int {
	var b [20]byte
	return len(strconv.AppendInt(b[:0], n, 10))
}

// appendText appends a string or an integer.
func appendText(b []byte, v Value) []byte {
	if v.isInt() {
		return strconv.AppendInt(b, v.n, 10)
	}
	return append(b, v.str()...)
}

// directive is one % of a format.
type directive struct {
	verb       byte
	left, zero bool
	width      int
}

// stringFormat knows %d %s %x %X %%, the flags 0 and -, and a width. It reads the
// format twice: to compute the size, which is charged, and to write.
func stringFormat(c *Call, args []Value) Value {
	at, format := c.at, c.string("string.format", args, 0)
	c.scan(len(format), at)
	size, next := int64(0), 1
	for rest := format; rest != ""; {
		literal, d, after := cutDirective(rest, at)
		size += int64(len(literal))
		rest = after
		switch d.verb {
		case 0:
			continue
		case '%':
			size++
		default:
			if next == len(args) {
				fail(at, "string.format has no argument for directive %d", next)
			}
			size += int64(max(c.formattedSize(d.verb, args, next), d.width))
			next++
		}
		c.spend(directiveSteps, at)
	}
	return c.makeString(size, at, func(b []byte) []byte {
		next := 1
		for rest := format; rest != ""; {
			literal, d, after := cutDirective(rest, at)
			b = append(b, literal...)
			rest = after
			switch d.verb {
			case 0:
			case '%':
				b = append(b, '%')
			default:
				b = appendFormatted(b, d, args[next])
				next++
			}
		}
		return b
	})
}

// cutDirective cuts the text before the next directive, and the directive, off a format. The
// verb is 0 if there is none.
func cutDirective(format string, at position) (literal string, d directive, rest string) {
	i := strings.IndexByte(format, '%')
	if i < 0 {
		return format, directive{}, ""
	}
	d, n, wrong := parseDirective(format[i+1:])
	if wrong != "" {
		fail(at, "%s", wrong)
	}
	return format[:i], d, format[i+1+n:]
}

// parseDirective parses the text after a %, and returns its length, or the reason why it is
// invalid.
func parseDirective(s string) (d directive, n int, wrong string) {
	for ; n < len(s) && (s[n] == '-' || s[n] == '0'); n++ {
		d.left = d.left || s[n] == '-'
		d.zero = d.zero || s[n] == '0'
	}
	for ; n < len(s) && s[n] >= '0' && s[n] <= '9' && d.width <= maxWidth; n++ {
		d.width = 10*d.width + int(s[n]-'0')
	}
	if d.width > maxWidth {
		return d, n, "string.format: a width is at most " + strconv.Itoa(maxWidth)
	}
	if n == len(s) || strings.IndexByte("dsxX%", s[n]) < 0 || s[n] == '%' && n > 0 {
		return d, n, "string.format knows %d %s %x %X %%, the flags 0 and -, and a width"
	}
	d.verb = s[n]
	d.zero = d.zero && !d.left && d.verb != 's'
	return d, n + 1, ""
}

// formattedSize is how many characters an argument takes. One that can't be formatted is
// an error.
func (c *Call) formattedSize(verb byte, args []Value, i int) int {
	switch v := args[i]; {
	case verb == 'd', verb == 's' && v.isInt():
		c.spend(numberSteps, c.at)
		return decimals(c.int("string.format", args, i))
	case verb != 's':
		return max(1, (bits.Len64(uint64(c.int("string.format", args, i)))+3)/4)
	default:
		s, ok := v.text()
		if !ok {
			fail(c.at, "a %s has no text", v.Kind())
		}
		return len(s)
	}
}

func appendFormatted(b []byte, d directive, v Value) []byte {
	var digits [20]byte
	switch {
	case d.verb == 'x':
		return appendPadded(b, strconv.AppendUint(digits[:0], uint64(v.n), 16), d)
	case d.verb == 'X':
		return appendPadded(b, swapCase(strconv.AppendUint(digits[:0], uint64(v.n), 16), 'a'), d)
	case v.isInt():
		return appendPadded(b, strconv.AppendInt(digits[:0], v.n, 10), d)
	}
	text, _ := v.text()
	return appendPadded(b, text, d)
}

func appendPadded[T string | []byte](b []byte, text T, d directive) []byte {
	pad := d.width - len(text)
	if d.zero && pad > 0 && text[0] == '-' {
		b, text = append(b, '-'), text[1:]
	}
	fill := byte(' ')
	if d.zero {
		fill = '0'
	}
	if d.left {
		b = append(b, text...)
	}
	for range max(pad, 0) {
		b = append(b, fill)
	}
	if d.left {
		return b
	}
	return append(b, text...)
}
