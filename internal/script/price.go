package script

// Prices beside the step of each node. A step is some nanoseconds: the prices are such
// that no construct takes many times as long per step as another, and that none
// allocates much more than it is charged for. `make cost-model` measures
// both, and DESIGN.md has the result.

// Bytes, by the capacity that is allocated, which grows by our own rules and not by
// those of Go's append.
const (
	tableBytes   = 96
	itemBytes    = 16
	fieldBytes   = 32
	frameBytes   = 64
	slotBytes    = 16
	closureBytes = 64
	upvalueBytes = 24
	cellBytes    = 32
	stringBytes  = 16 // on top of a new string's length
)

// Steps.
const (
	// allocSteps is for a new object of any size.
	allocSteps = 2
	// numberSteps is for writing a number in decimal, directiveSteps for a directive of a
	// format, findSteps for each place at which a search stops, compareSteps for each
	// comparison of a sort.
	numberSteps    = 3
	directiveSteps = 4
	findSteps      = 6
	compareSteps   = 2
	// These say how many bytes there are to a step: of memory that is allocated and
	// filled, of strings compared or moved, of the items of a table that make way for another
	// (which takes five times as long while the garbage collector marks), of keys that are
	// hashed or compared to some others, and of strings that are read byte by byte.
	allocShift = 4
	workShift  = 7
	moveShift  = 6
	keyShift   = 5
	scanShift  = 3
)

// spend takes steps.
func (c *Call) spend(steps int64, at position) {
	if c.steps -= steps; c.steps < 0 {
		c.outOfSteps(at)
	}
}

// allocate takes bytes for an object, and the steps that it takes to make and fill it.
func (c *Call) allocate(bytes int64, at position) {
	c.hold(bytes, at)
	c.spend(allocSteps+bytes>>allocShift, at)
}

// hold takes bytes alone.
func (c *Call) hold(bytes int64, at position) {
	if c.bytes -= bytes; c.bytes < 0 {
		c.bytes = 0
		c.overLimit(at, "more than %d bytes of memory", c.limits.Bytes)
	}
}

// work takes the steps of comparing or moving so many bytes.
func (c *Call) work(bytes int, at position) {
	if bytes >= 1<<workShift {
		c.spend(int64(bytes)>>workShift, at)
	}
}

// move takes the steps of moving items of a table within it.
func (c *Call) move(items int, at position) {
	if bytes := items * itemBytes; bytes >= 1<<moveShift {
		c.spend(int64(bytes)>>moveShift, at)
	}
}

// workOnKey takes the steps of finding a key.
func (c *Call) workOnKey(key Value, at position) {
	if key.isString() && key.size() >= 1<<keyShift {
		c.spend(int64(key.size())>>keyShift, at)
	}
}

// scan takes the steps of going through a string byte by byte.
func (c *Call) scan(bytes int, at position) {
	if bytes >= 1<<scanShift {
		c.spend(int64(bytes)>>scanShift, at)
	}
}
