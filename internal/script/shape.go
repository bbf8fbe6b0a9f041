package script

import (
	"slices"
	"strings"
)

// A Shape is the set of fields that a table of the host can have: reading any other one is
// an error, since it is a mistake in the source and would always be nil.
type Shape struct {
	what  string
	names []string
}

// NewShape creates a shape; what describes its tables in errors, such as "a request".
func NewShape(what string, names ...string) *Shape { return &Shape{what, names} }

// Wrong says why a table of the shape can't have a field, or "" if it can.
func (s *Shape) Wrong(name string) string {
	if slices.Contains(s.names, name) {
		return ""
	}
	return s.what + " has no field " + quoted(name) + "; it has " + s.String()
}

// String is the names.
func (s *Shape) String() string { return strings.Join(s.names, ", ") }

// Handler is a function that the host calls by its name in the table that the file
// returns.
type Handler struct {
	Argument *Shape // of its first argument, which is a table
	Answer   *Shape // of its return value, if that is a table with fields; nil allows any
}

// handlers checks how the file's handlers use their argument, and their return values. It
// checks only direct uses: a field by its name of the parameter itself, and a table
// constructor in a return. All others are checked when they run.
type handlers struct {
	reads   []*indexExpr
	written map[*variable]map[string]bool
	answers []answer
}

type answer struct {
	by    *function
	table *tableExpr
}

func (h *handlers) read(e *indexExpr) {
	if _, ok := e.object.(*nameExpr); ok {
		h.reads = append(h.reads, e)
	}
}

// wrote notes a field that the source sets itself.
func (h *handlers) wrote(e *indexExpr) {
	object, ok := e.object.(*nameExpr)
	key, named := constantString(e.key)
	if !ok || !named {
		return
	}
	if h.written == nil {
		h.written = map[*variable]map[string]bool{}
	}
	if h.written[object.variable] == nil {
		h.written[object.variable] = map[string]bool{}
	}
	h.written[object.variable][key.str()] = true
}

func (h *handlers) answered(by *function, e expression) {
	if t, ok := e.(*tableExpr); ok && t.list == 0 {
		h.answers = append(h.answers, answer{by, t})
	}
}

// check fails for the first mistake of the file, whose body it is given.
func (h *handlers) check(file *function, known map[string]Handler) {
	parameters, answers := map[*variable]*Shape{}, map[*function]*Shape{}
	for name, fn := range exported(file) {
		handler, ok := known[name]
		if !ok {
			continue
		}
		if len(fn.params) > 0 && !fn.params[0].assigned {
			parameters[fn.params[0]] = handler.Argument
		}
		answers[fn] = handler.Answer
	}
	for _, e := range h.reads {
		v := e.object.(*nameExpr).variable
		key, ok := constantString(e.key)
		if shape := parameters[v]; shape != nil && ok && !h.written[v][key.str()] {
			if wrong := shape.Wrong(key.str()); wrong != "" {
				fail(e.position, "%s", wrong)
			}
		}
	}
	for _, a := range h.answers {
		shape := answers[a.by]
		for i := 0; shape != nil && i < len(a.table.items); i++ {
			if key, ok := constantString(a.table.items[i].key); ok {
				if wrong := shape.Wrong(key.str()); wrong != "" {
					fail(a.table.items[i].key.pos(), "%s", wrong)
				}
			}
		}
	}
}

// exported are the functions that the file returns by name.
func exported(file *function) map[string]*function {
	list := map[string]*function{}
	end, ok := file.body[len(file.body)-1].(*returnStmt)
	if !ok {
		return list
	}
	table, ok := end.value.(*tableExpr)
	if !ok {
		return list
	}
	for _, item := range table.items {
		key, ok := constantString(item.key)
		if !ok {
			continue
		}
		switch value := item.value.(type) {
		case *functionExpr:
			list[key.str()] = value.fn
		case *nameExpr:
			if value.variable.self != nil && !value.variable.assigned {
				list[key.str()] = value.variable.self
			}
		}
	}
	return list
}
