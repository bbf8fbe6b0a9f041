package script

func (k *compiler) expression(e expression) evaluator {
	k.cost++
	switch e := e.(type) {
	case *constantExpr:
		v := e.value
		return func(*frame) Value { return v }
	case *nameExpr:
		return k.name(e)
	case *globalExpr:
		v := functionValue(e.fn)
		return func(*frame) Value { return v }
	case *indexExpr:
		return k.index(e)
	case *callExpr:
		return k.call(e)
	case *unaryExpr:
		return k.unary(e)
	case *binaryExpr:
		if comparisons[e.operator] {
			return truth(k.comparison(e))
		}
		return k.arithmetic(e)
	case *logicalExpr:
		return k.logical(e)
	case *concatExpr:
		return k.concat(e)
	case *tableExpr:
		return k.table(e)
	case *functionExpr:
		return k.closure(e)
	}
	panic("an expression without code")
}

func truth(test tester) evaluator {
	return func(f *frame) Value { return Bool(test(f)) }
}

func (k *compiler) name(e *nameExpr) evaluator {
	n := e.capture
	switch {
	case n >= 0 && e.variable.boxed():
		return func(f *frame) Value { return f.fn.bound[n].cell.value }
	case n >= 0:
		return func(f *frame) Value { return f.fn.bound[n].value }
	}
	slot := e.variable.slot
	if e.variable.boxed() {
		return func(f *frame) Value { return f.slots[slot].cell().value }
	}
	return func(f *frame) Value { return f.slots[slot] }
}

// local is the slot of an operand that is a plain local, the case worth having
// code of its own.
func local(e expression) (slot int, ok bool) {
	n, ok := e.(*nameExpr)
	if !ok || n.capture >= 0 || n.variable.boxed() {
		return 0, false
	}
	return n.variable.slot, true
}

func constantInt(e expression) (int64, bool) {
	c, ok := e.(*constantExpr)
	if !ok {
		return 0, false
	}
	return c.value.AsInt()
}

func constantString(e expression) (Value, bool) {
	c, ok := e.(*constantExpr)
	if !ok || !c.value.isString() {
		return Value{}, false
	}
	return c.value, true
}

func (k *compiler) unary(e *unaryExpr) evaluator {
	at := e.position
	switch e.operator {
	case "not":
		return truth(k.not(e))
	case "#":
		operand := k.expression(e.operand)
		return func(f *frame) Value {
			v := operand(f)
			switch {
			case v.isTable():
				return Int(int64(len(v.table().list)))
			case v.isString():
				return Int(int64(v.size()))
			}
			fail(at, "# wants a string or a table, not %s", v.Kind())
			return Value{}
		}
	}
	operand := k.expression(e.operand)
	return func(f *frame) Value {
		v := operand(f)
		if !v.isInt() {
			fail(at, "- wants a number, not %s%s", v.Kind(), hint(v))
		}
		if v.n == -v.n && v.n != 0 {
			fail(at, "integer overflow")
		}
		return Int(-v.n)
	}
}

func (k *compiler) logical(e *logicalExpr) evaluator {
	left := k.expression(e.left)
	var right evaluator
	cost := k.branch(func() { right = k.expression(e.right) })
	and, at := e.and, e.position
	return func(f *frame) Value {
		v := left(f)
		if v.Truthy() != and {
			return v
		}
		f.call.spend(cost, at)
		return right(f)
	}
}

func (k *compiler) index(e *indexExpr) evaluator {
	object := k.expression(e.object)
	at, what := e.position, describe(e.object)
	if key, ok := constantString(e.key); ok {
		k.cost++
		return func(f *frame) Value {
			v := object(f)
			if !v.isTable() {
				notIndexable(v, key, what, at)
			}
			f.call.workOnKey(key, at)
			t := v.table()
			if i := t.find(key); i >= 0 {
				return t.fields[i].value
			}
			if t.shape != nil {
				missing(t.shape, key, at)
			}
			return Value{}
		}
	}
	key := k.expression(e.key)
	return func(f *frame) Value {
		v := object(f)
		i := key(f)
		if !v.isTable() {
			notIndexable(v, i, what, at)
		}
		t := v.table()
		if i.isInt() && uint64(i.n-1) < uint64(len(t.list)) {
			return t.list[i.n-1]
		}
		f.call.readKey(i, at)
		value := t.Get(i)
		if t.shape != nil && value.IsNil() {
			missing(t.shape, i, at)
		}
		return value
	}
}

// missing refuses to read a field that a table can't have.
func missing(s *Shape, key Value, at position) {
	if !key.isString() {
		return
	}
	if wrong := s.Wrong(key.str()); wrong != "" {
		fail(at, "%s", wrong)
	}
}

// readKey is checkKey for reading, where nil finds nothing.
func (c *Call) readKey(key Value, at position) {
	if !key.IsNil() {
		c.checkKey(key, at)
	}
}

func notIndexable(v, key Value, what string, at position) {
	if v.isString() {
		fail(at, "%sa string has no fields: write s:sub(1, 2) or string.sub(s, 1, 2)", what)
	}
	if key.isString() {
		fail(at, "%sa %s value has no field %s", what, v.Kind(), quoted(key.str()))
	}
	fail(at, "%sa %s value can't be indexed", what, v.Kind())
}

// describe names an expression in an error, if it has a name.
func describe(e expression) string {
	switch e := e.(type) {
	case *nameExpr:
		return quoted(e.variable.name) + ": "
	case *indexExpr:
		if key, ok := constantString(e.key); ok {
			return quoted(key.str()) + ": "
		}
	}
	return ""
}

// concat evaluates all parts before it joins them, so that the string is made
// once and is paid for first.
func (k *compiler) concat(e *concatExpr) evaluator {
	top := k.top
	parts := make([]evaluator, len(e.parts))
	for i, p := range e.parts {
		parts[i] = k.expression(p)
		k.reserve()
	}
	k.top = top
	at := e.position
	return func(f *frame) Value {
		for i, part := range parts {
			v := part(f)
			f.slots[top+i] = v
		}
		return f.call.join(f.slots[top:top+len(parts)], "", "..", at)
	}
}

func (k *compiler) table(e *tableExpr) evaluator {
	type member struct{ key, value evaluator }
	members := make([]member, len(e.items))
	for i, item := range e.items {
		k.cost++
		if item.key != nil {
			members[i].key = k.expression(item.key)
		}
		members[i].value = k.expression(item.value)
	}
	at, items, fields := e.position, e.list, len(e.items)-e.list
	return func(f *frame) Value {
		c := f.call
		t := c.newTable(items, fields, at)
		next := int64(1)
		for i := range members {
			m := &members[i]
			key := Int(next)
			if m.key != nil {
				key = m.key(f)
				c.checkKey(key, at)
			} else {
				next++
			}
			v := m.value(f)
			if m.key == nil && v.IsNil() {
				fail(at, "item %d of the table is nil", next-1)
			}
			c.set(t, key, v, at)
		}
		return tableValue(t)
	}
}

// closure makes a function value: it copies the outer variables that it uses,
// or their cells.
func (k *compiler) closure(e *functionExpr) evaluator {
	code := compileFunction(e.fn)
	sources := make([]captured, len(e.fn.captures))
	for i, c := range e.fn.captures {
		sources[i] = captured{c.from, c.variable.slot, c.variable.boxed(), c.variable.self == e.fn}
	}
	at := e.position
	return func(f *frame) Value {
		f.call.allocate(closureBytes, at)
		fn := &closure{code: code, loaded: f.call.loading}
		if len(sources) > 0 {
			f.call.spend(int64(len(sources)), at)
			f.call.allocate(int64(len(sources))*upvalueBytes, at)
			fn.bound = make([]upvalue, len(sources))
		}
		for i, c := range sources {
			switch {
			case c.from >= 0:
				fn.bound[i] = f.fn.bound[c.from]
			case c.boxed:
				fn.bound[i].cell = f.slots[c.slot].cell()
			case c.self:
				fn.bound[i].value = functionValue(fn)
			default:
				fn.bound[i].value = f.slots[c.slot]
			}
		}
		return functionValue(fn)
	}
}

// captured says where a function value has an outer variable from. Compiled code keeps
// no other part of the verifier's tree: a function that referred to a part of the
// tree would keep all of it in memory.
type captured struct {
	from, slot  int
	boxed, self bool
}
