package extension

import (
	"strconv"
	"strings"

	"github.com/stoa-kv/stoa/internal/script"
)

// A call keeps so many lines, of so many bytes; the rest is charged and dropped.
const (
	maxLogLines = 100
	maxLogLine  = 1000
)

// logSteps is the cost of a line beside its text.
const logSteps = 10

// log adds a line to the call's own log. It is no part of the state: it is charged
// in the same way on all servers; none of them replicates it.
func (c *call) log(a arguments) (script.Value, error) {
	size := 0
	for _, v := range a.list {
		size += 1 + min(logSize(v), maxLogLine)
	}
	if err := a.Charge(logSteps+int64(len(a.list)), 0); err != nil {
		return script.Nil(), err
	}
	if err := a.Allocate(int64(size)); err != nil || len(c.lines) == maxLogLines {
		return script.Nil(), err
	}
	var b strings.Builder
	b.Grow(min(size, maxLogLine))
	for i, v := range a.list {
		if i > 0 {
			b.WriteByte(' ')
		}
		text := logText(v)
		if b.WriteString(text[:min(len(text), maxLogLine-b.Len())]); b.Len() == maxLogLine {
			break
		}
	}
	c.lines = append(c.lines, b.String())
	return script.Nil(), nil
}

// logSize is at least the length of a value's text.
func logSize(v script.Value) int {
	if s, ok := v.AsString(); ok {
		return len(s)
	}
	return 20
}

// logText shows also values without a text in the language, without their addresses.
func logText(v script.Value) string {
	if s, ok := v.AsString(); ok {
		return s
	}
	if n, ok := v.AsInt(); ok {
		return strconv.FormatInt(n, 10)
	}
	if b, ok := v.AsBool(); ok {
		return strconv.FormatBool(b)
	}
	return v.Kind().String()
}
