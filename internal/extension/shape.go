package extension

import "github.com/stoa-kv/stoa/internal/script"

// The fields of a handler's argument, of the values that it reads and of its return value.
// A field that is absent from a value is nil; one that no value has is an error.
var (
	requestShape = script.NewShape("a request", "key", "value", "op", "range_end", "lease", "limit", "client", "start_revision", "revision")
	eventShape   = script.NewShape("an event", "type", "key", "value", "prev_value", "client", "revision", "lease", "version", "create_revision")
	stateShape   = script.NewShape("a key's state", "key", "value", "version", "create_revision", "mod_revision", "lease")
	answerShape  = script.NewShape("an answer", "key", "value", "version", "create_revision", "mod_revision", "lease")
)

// handlers are the functions of a file that are called by their names.
var handlers = makeHandlers()

func makeHandlers() map[string]script.Handler {
	all := map[string]script.Handler{"event": {Argument: eventShape}}
	for op := range ops {
		all[op.String()] = script.Handler{Argument: requestShape, Answer: answerShape}
	}
	return all
}
