package script

import "strings"

// maxNeedle is how much of a text is searched for at once. Go's search for longer ones
// compares hashes, of a kind for which collisions are easily constructed: then it compares
// all of the text at each place.
const maxNeedle = 63

// search charges for going through so many bytes in search of a text of so many. One byte
// is found many at a time.
func (c *Call) search(in, sub int) {
	if sub > 1 {
		in *= 12
	}
	c.work(in, c.at)
}

// index is where sub begins in s, or -1. The caller has charged for the scan of s; the
// bytes compared beyond the beginning of sub are charged here, place by place.
func (c *Call) index(s, sub string) int {
	if len(sub) <= maxNeedle {
		return strings.Index(s, sub)
	}
	for from := 0; ; from++ {
		i := strings.Index(s[from:], sub[:maxNeedle])
		if i < 0 || len(s)-from-i < len(sub) {
			return -1
		}
		from += i
		c.spend(findSteps, c.at)
		c.work(len(sub), c.at)
		if strings.HasPrefix(s[from:], sub) {
			return from
		}
	}
}

// stringFind looks for plain text, and gives where it begins.
func stringFind(c *Call, args []Value) Value {
	s, sub, first := c.string("string.find", args, 0), c.string("string.find", args, 1), int64(1)
	if len(args) == 3 {
		if first = c.int("string.find", args, 2); first < 0 {
			first += int64(len(s)) + 1
		}
		first = max(first, 1)
	}
	if first > int64(len(s))+1 {
		return Value{}
	}
	rest := s[first-1:]
	c.search(len(rest), len(sub))
	i := c.index(rest, sub)
	if i < 0 {
		return Value{}
	}
	return Int(first + int64(i))
}

func stringSplit(c *Call, args []Value) Value {
	s, separator := c.string("string.split", args, 0), c.string("string.split", args, 1)
	if separator == "" {
		fail(c.at, "string.split wants a separator")
	}
	at := c.at
	c.search(len(s), len(separator))
	t := c.newTable(0, 0, at)
	for {
		c.spend(findSteps, at)
		i := c.index(s, separator)
		if i < 0 {
			c.push(t, String(s), at)
			return tableValue(t)
		}
		c.push(t, String(s[:i]), at)
		s = s[i+len(separator):]
	}
}
