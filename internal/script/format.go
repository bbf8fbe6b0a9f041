package script

import (
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

// stringFormat knows %d %s %x %X %%, the flags 0 and -, and a width. It runs
// over the format twice: to know the size, which is charged, and to write.
func stringFormat(c *Call, args []Value) Value {
	at, format := c.at, c.string("string.format", args, 0)
	c.work(2*len(format), at)
	size := int64(0)
	c.eachDirective(format, args, func(literal, text string, d directive) {
		size += int64(len(literal)) + int64(max(len(text), d.width))
	})
	return c.makeString(size, at, func(b []byte) []byte {
		c.eachDirective(format, args, func(literal, text string, d directive) {
			b = appendPadded(append(b, literal...), text, d)
		})
		return b
	})
}

func (c *Call) eachDirective(format string, args []Value, do func(literal, text string, d directive)) {
	next := 1
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			do(format, "", directive{})
			return
		}
		d, rest := c.parseDirective(format[i+1:])
		if d.verb == '%' {
			do(format[:i], "%", d)
		} else {
			if next == len(args) {
				fail(c.at, "string.format has no argument for directive %d", next)
			}
			do(format[:i], c.formatted(d.verb, args, next), d)
			next++
		}
		format = rest
	}
}

func (c *Call) parseDirective(s string) (d directive, rest string) {
	i := 0
	for ; i < len(s) && (s[i] == '-' || s[i] == '0'); i++ {
		d.left = d.left || s[i] == '-'
		d.zero = d.zero || s[i] == '0'
	}
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9' && d.width <= maxWidth; i++ {
		d.width = 10*d.width + int(s[i]-'0')
	}
	if d.width > maxWidth {
		fail(c.at, "string.format: a width is at most %d", maxWidth)
	}
	if i == len(s) || strings.IndexByte("dsxX%", s[i]) < 0 || s[i] == '%' && i > 0 {
		fail(c.at, "string.format knows %%d %%s %%x %%X %%%%, the flags 0 and -, and a width")
	}
	d.verb = s[i]
	d.zero = d.zero && !d.left && d.verb != 's'
	return d, s[i+1:]
}

func (c *Call) formatted(verb byte, args []Value, i int) string {
	switch verb {
	case 'd':
		return strconv.FormatInt(c.int("string.format", args, i), 10)
	case 'x':
		return strconv.FormatUint(uint64(c.int("string.format", args, i)), 16)
	case 'X':
		return strings.ToUpper(strconv.FormatUint(uint64(c.int("string.format", args, i)), 16))
	}
	s, ok := args[i].text()
	if !ok {
		fail(c.at, "a %s has no text", args[i].Kind())
	}
	return s
}

func appendPadded(b []byte, text string, d directive) []byte {
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
