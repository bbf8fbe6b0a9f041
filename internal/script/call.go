package script

// call evaluates the arguments into the slots above all that is in use, from
// where the called function copies them.
func (k *compiler) call(e *callExpr) evaluator {
	var callee evaluator
	direct, _ := e.callee.(*globalExpr)
	if direct == nil {
		callee = k.expression(e.callee)
	}
	top, at, n := k.top, e.position, len(e.args)
	args := make([]evaluator, n)
	for i, a := range e.args {
		args[i] = k.expression(a)
		k.reserve()
	}
	k.top = top
	if direct != nil {
		k.cost++
		return k.directCall(direct.fn.native, args, top, at)
	}
	what := describe(e.callee)
	return func(f *frame) Value {
		fn := callee(f)
		if !fn.isFunction() {
			fail(at, "%sa %s value can't be called", what, fn.Kind())
		}
		for i, arg := range args {
			v := arg(f)
			f.slots[top+i] = v
		}
		called := fn.closure()
		if called.native != nil {
			if reason := called.native.counts(n); reason != "" {
				fail(at, "%s", reason)
			}
		}
		return f.call.invoke(called, f.slots[top:top+n], at)
	}
}

func (k *compiler) directCall(fn *Function, args []evaluator, top int, at position) evaluator {
	n := len(args)
	if n == 1 {
		arg := args[0]
		return func(f *frame) Value {
			v := arg(f)
			f.slots[top] = v
			return f.call.native(fn, f.slots[top:top+1:top+1], at)
		}
	}
	return func(f *frame) Value {
		for i, arg := range args {
			v := arg(f)
			f.slots[top+i] = v
		}
		return f.call.native(fn, f.slots[top:top+n:top+n], at)
	}
}

// assign evaluates all that stands on the left, then all on the right, then
// assigns from left to right.
func (k *compiler) assign(s *assignStmt) runner {
	if len(s.targets) == 1 {
		return k.assignOne(s)
	}
	top := k.top
	type target struct {
		object, key evaluator
		slot        int // of object and key
		store       func(f *frame, v Value)
		at          position
	}
	targets := make([]target, len(s.targets))
	for i, e := range s.targets {
		t := &targets[i]
		k.cost++
		switch e := e.(type) {
		case *nameExpr:
			t.store = k.storeName(e)
		case *indexExpr:
			t.at = e.position
			t.object = k.expression(e.object)
			t.slot = k.reserve()
			t.key = k.expression(e.key)
			k.reserve()
		}
	}
	first := k.top
	values := make([]evaluator, len(s.values))
	for i, e := range s.values {
		values[i] = k.expression(e)
		k.reserve()
	}
	k.top = top
	return func(f *frame) signal {
		for i := range targets {
			if t := &targets[i]; t.object != nil {
				v := t.object(f)
				f.slots[t.slot] = v
				v = t.key(f)
				f.slots[t.slot+1] = v
			}
		}
		for i, value := range values {
			v := value(f)
			f.slots[first+i] = v
		}
		for i := range targets {
			t, v := &targets[i], f.slots[first+i]
			if t.object == nil {
				t.store(f, v)
			} else {
				f.call.storeIndex(f.slots[t.slot], f.slots[t.slot+1], v, "", t.at)
			}
		}
		return onward
	}
}

func (k *compiler) assignOne(s *assignStmt) runner {
	k.cost++
	switch e := s.targets[0].(type) {
	case *nameExpr:
		value := k.expression(s.values[0])
		if slot, ok := local(e); ok {
			return func(f *frame) signal { f.slots[slot] = value(f); return onward }
		}
		store := k.storeName(e)
		return func(f *frame) signal { store(f, value(f)); return onward }
	case *indexExpr:
		object := k.expression(e.object)
		key := k.expression(e.key)
		value := k.expression(s.values[0])
		at, what := e.position, describe(e.object)
		return func(f *frame) signal {
			t := object(f)
			i := key(f)
			f.call.storeIndex(t, i, value(f), what, at)
			return onward
		}
	}
	panic("a target without code")
}

func (k *compiler) storeName(e *nameExpr) func(f *frame, v Value) {
	if n, at, name := e.capture, e.position, e.variable.name; n >= 0 {
		return func(f *frame, v Value) {
			c := f.fn.bound[n].cell
			if c.loaded && !f.call.loading {
				fail(at, "%s was made while the file was loaded, and nothing is kept between calls: use put", quoted(name))
			}
			c.value = v
		}
	}
	slot := e.variable.slot
	if e.variable.boxed() {
		return func(f *frame, v Value) { f.slots[slot].cell().value = v }
	}
	return func(f *frame, v Value) { f.slots[slot] = v }
}

func (c *Call) storeIndex(object, key, v Value, what string, at position) {
	if !object.isTable() {
		notIndexable(object, key, what, at)
	}
	c.checkKey(key, at)
	c.set(object.table(), key, v, at)
}
