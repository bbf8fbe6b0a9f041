package script

// The compiler turns the verifier's tree into Go closures. It resolves every
// variable to a slot or cell, so that at run time there are no names.

type (
	// evaluator gives an expression's value.
	evaluator func(f *frame) Value
	// tester gives a condition's truth without making a value of it.
	tester func(f *frame) bool
	// runner executes a statement.
	runner func(f *frame) signal
)

// signal is how a statement ended.
type signal int

const (
	onward signal = iota
	broke
	returned
)

// instruction is a statement with the price of all of its nodes that are
// evaluated in any case. The enclosing block charges for it.
type instruction struct {
	run  runner
	cost int64
	at   position
}

type block []instruction

func (b block) run(f *frame) signal {
	for i := range b {
		s := &b[i]
		if f.call.steps -= s.cost; f.call.steps < 0 {
			f.call.outOfSteps(s.at)
		}
		if sig := s.run(f); sig != onward {
			return sig
		}
	}
	return onward
}

// compiler compiles one function.
type compiler struct {
	function *function
	top      int   // slots in use at this place
	slots    int   // the most that were in use
	cost     int64 // of the nodes since the statement, or the branch, began
}

func compileFunction(fn *function) *code {
	k := &compiler{function: fn}
	c := &code{at: fn.position, params: len(fn.params)}
	for i, p := range fn.params {
		k.declare(p)
		if p.boxed() {
			c.boxed = append(c.boxed, i)
		}
	}
	c.body = k.block(fn.body)
	c.slots = k.slots
	if c.slots > maxSlots {
		fail(fn.position, "the function needs more than %d slots: split it", maxSlots)
	}
	return c
}

func (k *compiler) declare(v *variable) int {
	v.slot = k.reserve()
	return v.slot
}

func (k *compiler) reserve() int {
	k.top++
	k.slots = max(k.slots, k.top)
	return k.top - 1
}

// branch compiles code that is evaluated conditionally, and returns its price separately.
func (k *compiler) branch(compile func()) int64 {
	outer := k.cost
	k.cost = 0
	compile()
	cost := k.cost
	k.cost = outer
	return cost
}

func (k *compiler) block(body []statement) block {
	top := k.top
	b := k.openBlock(body)
	k.top = top
	return b
}

// openBlock leaves the block's locals in scope, for the code that follows it.
func (k *compiler) openBlock(body []statement) block {
	b := make(block, 0, len(body))
	for _, s := range body {
		var run runner
		cost := k.branch(func() { run = k.statement(s) })
		b = append(b, instruction{run, cost + 1, s.pos()})
	}
	return b
}

func (k *compiler) statement(s statement) runner {
	switch s := s.(type) {
	case *localStmt:
		return k.local(s)
	case *assignStmt:
		return k.assign(s)
	case *callStmt:
		call := k.expression(s.call)
		return func(f *frame) signal { call(f); return onward }
	case *doStmt:
		return k.block(s.body).run
	case *ifStmt:
		return k.ifStatement(s)
	case *whileStmt:
		return k.while(s)
	case *repeatStmt:
		return k.repeat(s)
	case *numericForStmt:
		return k.numericFor(s)
	case *genericForStmt:
		if s.sequence {
			return k.sequenceFor(s)
		}
		return k.pairsFor(s)
	case *breakStmt:
		return func(*frame) signal { return broke }
	case *returnStmt:
		if s.value == nil {
			return func(*frame) signal { return returned }
		}
		value := k.expression(s.value)
		return func(f *frame) signal { f.result = value(f); return returned }
	}
	panic("a statement without code")
}

func (k *compiler) local(s *localStmt) runner {
	if fn := selfOf(s); fn != nil && fn.boxed() {
		return k.boxedFunction(s, fn)
	}
	if len(s.variables) == 1 && len(s.values) == 1 && !s.variables[0].boxed() {
		value := k.expression(s.values[0])
		slot := k.declare(s.variables[0])
		return func(f *frame) signal { f.slots[slot] = value(f); return onward }
	}
	// The values are evaluated into the slots that the variables then have: none
	// of them can be seen before the last is there.
	top := k.top
	values := make([]evaluator, len(s.variables))
	for i := range s.variables {
		if i < len(s.values) {
			values[i] = k.expression(s.values[i])
		}
		k.reserve()
	}
	k.top = top
	boxed := make([]bool, len(s.variables))
	for i, v := range s.variables {
		k.declare(v)
		boxed[i] = v.boxed()
	}
	k.cost += int64(len(s.variables) - len(s.values)) // those that become nil
	at := s.position
	return func(f *frame) signal {
		for i, value := range values {
			v := Value{}
			if value != nil {
				v = value(f)
			}
			f.slots[top+i] = v
		}
		for i, b := range boxed {
			if b {
				f.slots[top+i] = f.call.box(f.slots[top+i], at)
			}
		}
		return onward
	}
}

// selfOf is the variable of a `local function`, which its body can see.
func selfOf(s *localStmt) *variable {
	if len(s.variables) == 1 && s.variables[0].self != nil {
		return s.variables[0]
	}
	return nil
}

// boxedFunction is a local function whose name is assigned to later: its cell
// must be there before the function is.
func (k *compiler) boxedFunction(s *localStmt, v *variable) runner {
	slot := k.declare(v)
	value := k.expression(s.values[0])
	at := s.position
	return func(f *frame) signal {
		f.slots[slot] = f.call.box(Value{}, at)
		v := value(f)
		f.slots[slot].cell().value = v
		return onward
	}
}

func (k *compiler) ifStatement(s *ifStmt) runner {
	if len(s.clauses) == 1 {
		return k.singleIf(s)
	}
	type branch struct {
		test tester
		cost int64
		at   position
		body block
	}
	branches := make([]branch, len(s.clauses))
	for i, c := range s.clauses {
		b := &branches[i]
		b.at = c.position
		b.cost = k.branch(func() { b.test = k.condition(c.condition) })
		b.body = k.block(c.body)
	}
	otherwise := k.block(s.otherwise)
	return func(f *frame) signal {
		for i := range branches {
			b := &branches[i]
			f.call.spend(b.cost, b.at)
			if b.test(f) {
				return b.body.run(f)
			}
		}
		return otherwise.run(f)
	}
}

func (k *compiler) singleIf(s *ifStmt) runner {
	test := k.condition(s.clauses[0].condition)
	body := k.block(s.clauses[0].body)
	otherwise := k.block(s.otherwise)
	return func(f *frame) signal {
		if test(f) {
			return body.run(f)
		}
		return otherwise.run(f)
	}
}
