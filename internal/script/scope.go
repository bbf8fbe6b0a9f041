package script

import "strings"

func (v *verifier) open() { v.scope.blocks = append(v.scope.blocks, len(v.scope.active)) }
func (v *verifier) close() {
	s := v.scope
	s.active = s.active[:s.blocks[len(s.blocks)-1]]
	s.blocks = s.blocks[:len(s.blocks)-1]
}

func (v *verifier) declare(name string, at position) *variable {
	v.count(at)
	s := v.scope
	if len(s.active) == maxLocals {
		fail(at, "more than %d locals in one function", maxLocals)
	}
	n := &variable{name: name, owner: s.function}
	s.active = append(s.active, n)
	return n
}

// resolve finds a local and says which capture of the scope's function it is;
// -1 if it is the function's own.
func (v *verifier) resolve(s *scope, name string) (*variable, int) {
	if s == nil {
		return nil, -1
	}
	for i := len(s.active) - 1; i >= 0; i-- {
		if s.active[i].name == name {
			return s.active[i], -1
		}
	}
	found, from := v.resolve(s.parent, name)
	if found == nil {
		return nil, -1
	}
	for i, c := range s.function.captures {
		if c.variable == found {
			return found, i
		}
	}
	if len(s.function.captures) == maxLocals {
		fail(v.at, "more than %d outer locals in one function", maxLocals)
	}
	found.captured = true
	s.function.captures = append(s.function.captures, capture{found, from})
	return found, len(s.function.captures) - 1
}

// known says whether a name is a local here, without capturing it.
func (v *verifier) known(name string) bool {
	for s := v.scope; s != nil; s = s.parent {
		for _, n := range s.active {
			if n.name == name {
				return true
			}
		}
	}
	return false
}

// absent says why a name that other Luas have means nothing here.
var absent = map[string]string{
	"pcall":          "errors can't be caught: they end the call and undo its writes",
	"xpcall":         "errors can't be caught: they end the call and undo its writes",
	"print":          "use log, which `stoactl extension test` shows",
	"next":           "use for k, v in pairs(t)",
	"unpack":         "a function returns one value: return a table",
	"select":         "there are no variable arguments: use a table",
	"setmetatable":   "there are no metatables",
	"getmetatable":   "there are no metatables",
	"rawget":         "there are no metatables",
	"rawset":         "there are no metatables",
	"rawequal":       "there are no metatables",
	"coroutine":      "there are no coroutines",
	"os":             "a script can't see the world: every replica must do the same",
	"io":             "a script can't see the world: every replica must do the same",
	"debug":          "a script can't see itself",
	"collectgarbage": "memory is managed by the server",
	"require":        "a script is one file",
	"module":         "a script is one file",
	"dofile":         "a script is one file",
	"loadfile":       "a script is one file",
	"load":           "code can't be made at run time",
	"loadstring":     "code can't be made at run time",
	"_G":             "there are no globals: use locals",
	"getfenv":        "there are no globals: use locals",
	"setfenv":        "there are no globals: use locals",
	"newproxy":       "there are no metatables",
	"channel":        "there are no channels",
}

// unknown refuses a name that is no local, builtin or host function.
func (v *verifier) unknown(name string, at position) {
	library, rest, dotted := strings.Cut(name, ".")
	switch reason := absent[name]; {
	case reason != "":
		fail(at, "there is no %s: %s", name, reason)
	case dotted:
		fail(at, "there is no %s: %s has %s", readable(library+"."+rest), library, libraries[library].names)
	}
	fail(at, "unknown name %s: it is no local, builtin or host function", readable(name))
}
