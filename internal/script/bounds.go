package script

// Version changes whenever the same source with the same limits could have
// another result, use more or fewer steps or bytes, or keep more or less, than before.
// A cluster stores the version of each of its extensions, and every replica must run
// them with the semantics of that version.
const (
	Version = 2 // that this package runs new extensions as
	Oldest  = 2 // that it still knows
)

// Bounds limit a source. A field that is 0 means the default.
type Bounds struct {
	Source  int // bytes
	Nesting int // of brackets, blocks, operators and the syntax tree
	Nodes   int // of the syntax tree

	// Handlers are the functions that the host calls, by name.
	Handlers map[string]Handler

	// Pause is called all through the compilation: three times for each KiB of the source.
	// nil: never.
	Pause func()
}

// Limits bound the resources of a run. All of them are exact.
type Limits struct {
	Steps int64 // nodes evaluated, turns of loops, and work in builtins by 64 bytes
	Bytes int64 // allocated in total, whether or not they are still in use
	Depth int   // of calls, at most MaxDepth
}

// Usage is the resource usage of a run, never more than its limits.
type Usage struct {
	Steps, Bytes int64
}

const (
	// MaxNesting and MaxDepth bound the Go stack together: see DESIGN.md.
	MaxNesting = 200
	MaxDepth   = 1000

	maxLocals = 200  // of one function, as in Lua
	maxSlots  = 1000 // locals and intermediate values of one function
)

// defaultBounds are for sources that people write.
var defaultBounds = Bounds{Source: 64 << 10, Nesting: 100, Nodes: 20_000}

func (b Bounds) orDefault() Bounds {
	if b.Source <= 0 {
		b.Source = defaultBounds.Source
	}
	if b.Nesting <= 0 {
		b.Nesting = defaultBounds.Nesting
	}
	if b.Nodes <= 0 {
		b.Nodes = defaultBounds.Nodes
	}
	b.Nesting = min(b.Nesting, MaxNesting)
	return b
}
