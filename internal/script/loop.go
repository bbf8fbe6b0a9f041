package script

func (k *compiler) while(s *whileStmt) runner {
	var test tester
	cost := 1 + k.branch(func() { test = k.condition(s.condition) })
	body, at := k.block(s.body), s.position
	return func(f *frame) signal {
		for {
			f.call.spend(cost, at)
			if !test(f) {
				return onward
			}
			if sig := body.run(f); sig != onward {
				return after(sig)
			}
		}
	}
}

// after is the signal for the code around a loop that sig has ended.
func after(sig signal) signal {
	if sig == broke {
		return onward
	}
	return sig
}

func (k *compiler) repeat(s *repeatStmt) runner {
	top := k.top
	body := k.openBlock(s.body)
	var test tester
	cost := 1 + k.branch(func() { test = k.condition(s.condition) })
	k.top = top
	at := s.position
	return func(f *frame) signal {
		for {
			f.call.spend(cost, at)
			if sig := body.run(f); sig != onward {
				return after(sig)
			}
			if test(f) {
				return onward
			}
		}
	}
}

// numericFor counts its turns before the first, so that it ends at the edge of
// the integers too.
func (k *compiler) numericFor(s *numericForStmt) runner {
	top := k.top
	first := k.expression(s.first)
	last := k.expression(s.last)
	step := evaluator(func(*frame) Value { return Int(1) })
	if s.step != nil {
		step = k.expression(s.step)
	}
	slot, boxed := k.declare(s.variable), s.variable.boxed()
	body, at := k.block(s.body), s.position
	k.top = top
	return func(f *frame) signal {
		i := loopBound(first(f), "start", at)
		n := loopBound(last(f), "end", at)
		by := loopBound(step(f), "step", at)
		turns, any := countTurns(i, n, by, at)
		for any {
			f.call.spend(1, at)
			f.slots[slot] = Int(i)
			if boxed {
				f.slots[slot] = f.call.box(Int(i), at)
			}
			if sig := body.run(f); sig != onward {
				return after(sig)
			}
			if turns == 0 {
				return onward
			}
			turns--
			i += by
		}
		return onward
	}
}

func loopBound(v Value, what string, at position) int64 {
	if !v.isInt() {
		fail(at, "the %s of a for must be a number, not %s", what, v.Kind())
	}
	return v.n
}

// countTurns says whether there is a first turn, and how many follow it.
func countTurns(i, n, by int64, at position) (more uint64, any bool) {
	switch {
	case by == 0:
		fail(at, "the step of a for can't be 0")
	case by > 0 && i <= n:
		return (uint64(n) - uint64(i)) / uint64(by), true
	case by < 0 && i >= n:
		return (uint64(i) - uint64(n)) / (uint64(-(by + 1)) + 1), true
	}
	return 0, false
}

// loopVariables puts a turn's key and value into their slots.
func (k *compiler) loopVariables(s *genericForStmt) func(f *frame, key, value Value) {
	at := s.position
	keySlot, keyBoxed := k.declare(s.key), s.key.boxed()
	if s.value == nil {
		return func(f *frame, key, _ Value) {
			if keyBoxed {
				key = f.call.box(key, at)
			}
			f.slots[keySlot] = key
		}
	}
	valueSlot, valueBoxed := k.declare(s.value), s.value.boxed()
	return func(f *frame, key, value Value) {
		if keyBoxed {
			key = f.call.box(key, at)
		}
		if valueBoxed {
			value = f.call.box(value, at)
		}
		f.slots[keySlot], f.slots[valueSlot] = key, value
	}
}

// sequenceFor is ipairs: it sees its body's changes of the table, and ends at the
// first hole.
func (k *compiler) sequenceFor(s *genericForStmt) runner {
	top, at := k.top, s.position
	table := k.expression(s.table)
	assign := k.loopVariables(s)
	body := k.block(s.body)
	k.top = top
	return func(f *frame) signal {
		t := walkedTable(table(f), "ipairs", at)
		for i := 0; i < len(t.list) && !t.list[i].IsNil(); i++ {
			f.call.spend(1, at)
			assign(f, Int(int64(i)+1), t.list[i])
			if sig := body.run(f); sig != onward {
				return after(sig)
			}
		}
		return onward
	}
}

// pairsFor visits the keys that were there when it began and still are when their turn
// comes, in the table's order: none that the body adds.
func (k *compiler) pairsFor(s *genericForStmt) runner {
	top, at := k.top, s.position
	table := k.expression(s.table)
	assign := k.loopVariables(s)
	body := k.block(s.body)
	k.top = top
	return func(f *frame) signal {
		t := walkedTable(table(f), "pairs", at)
		shared := t.loaded && !f.call.loading
		if !shared {
			t.walks++
		}
		sig := walk(f, t, at, assign, body)
		if !shared {
			t.walks--
		}
		return after(sig)
	}
}

func walk(f *frame, t *Table, at position, assign func(f *frame, key, value Value), body block) signal {
	items, fields := len(t.list), len(t.fields)
	for i := 0; i < items && i < len(t.list); i++ {
		f.call.spend(1, at)
		if t.list[i].IsNil() {
			continue
		}
		assign(f, Int(int64(i)+1), t.list[i])
		if sig := body.run(f); sig != onward {
			return sig
		}
	}
	for i := 0; i < fields; i++ {
		f.call.spend(1, at)
		field := t.fields[i]
		if field.value.IsNil() {
			continue
		}
		assign(f, field.key, field.value)
		if sig := body.run(f); sig != onward {
			return sig
		}
	}
	return onward
}

func walkedTable(v Value, what string, at position) *Table {
	if !v.isTable() {
		fail(at, "%s wants a table, not %s", what, v.Kind())
	}
	return v.table()
}
