package script

import "regexp"

// patterns matches the parts of a constant that look like Lua patterns, which this subset
// doesn't have.
var patterns = regexp.MustCompile(`%[acdlpsuwxzACDLPSUWXZ.^$()*+?\[\]-]|\[\^|\[[^\]]-[^\]]\]|\.[*+-]|^\^.|[*+]\$$`)

// checkConstants refuses arguments that are constants and that a builtin would refuse at
// run time, or that mean something else in Lua.
func checkConstants(fn *Function, args []expression) {
	constant := func(i int) (string, position, bool) {
		if i >= len(args) {
			return "", position{}, false
		}
		e, ok := args[i].(*constantExpr)
		if !ok || !e.value.isString() {
			return "", position{}, false
		}
		return e.value.str(), e.position, true
	}
	switch fn.Name {
	case "string.format":
		if format, at, ok := constant(0); ok {
			checkFormat(format, len(args)-1, at)
		}
	case "string.find":
		text, at, ok := constant(1)
		if found := patterns.FindString(text); ok && found != "" {
			fail(at, "%s looks for plain text, there are no patterns: %s would be found as it is; put it in a local if that is meant", fn.Name, quoted(found))
		}
	}
}

// checkFormat requires known directives, with an argument for each.
func checkFormat(format string, args int, at position) {
	n := 0
	for rest := format; rest != ""; {
		_, d, after := cutDirective(rest, at)
		if rest = after; d.verb != 0 && d.verb != '%' {
			n++
		}
	}
	if n > args {
		fail(at, "string.format has %d directives, but %d argument%s", n, args, plural(args))
	}
}
