package script

var comparisons = map[string]bool{"==": true, "~=": true, "<": true, "<=": true, ">": true, ">=": true}

// condition compiles an expression of which only the truth value is used. Its price is
// that of the expression.
func (k *compiler) condition(e expression) tester {
	switch e := e.(type) {
	case *binaryExpr:
		if comparisons[e.operator] {
			k.cost++
			return k.comparison(e)
		}
	case *unaryExpr:
		if e.operator == "not" {
			k.cost++
			return k.not(e)
		}
	case *logicalExpr:
		k.cost++
		return k.logicalCondition(e)
	}
	value := k.expression(e)
	return func(f *frame) bool { return value(f).Truthy() }
}

func (k *compiler) not(e *unaryExpr) tester {
	test := k.condition(e.operand)
	return func(f *frame) bool { return !test(f) }
}

func (k *compiler) logicalCondition(e *logicalExpr) tester {
	left := k.condition(e.left)
	var right tester
	cost := k.branch(func() { right = k.condition(e.right) })
	and, at := e.and, e.position
	return func(f *frame) bool {
		if left(f) != and {
			return !and
		}
		f.call.spend(cost, at)
		return right(f)
	}
}

func (k *compiler) comparison(e *binaryExpr) tester {
	left, right := k.expression(e.left), k.expression(e.right)
	at := e.position
	switch e.operator {
	case "==", "~=":
		return k.equality(e, left, right)
	case "<", ">":
		if e.operator == ">" {
			return func(f *frame) bool { a := left(f); return f.call.less(right(f), a, at) }
		}
		if slot, ok := local(e.left); ok {
			return func(f *frame) bool {
				a := f.slots[slot]
				b := right(f)
				if a.isInt() && b.isInt() {
					return a.n < b.n
				}
				return f.call.less(a, b, at)
			}
		}
		return func(f *frame) bool { a := left(f); return f.call.less(a, right(f), at) }
	case ">=":
		return func(f *frame) bool { a := left(f); return !f.call.less(a, right(f), at) }
	}
	return func(f *frame) bool { a := left(f); return !f.call.less(right(f), a, at) }
}

func (k *compiler) equality(e *binaryExpr, left, right evaluator) tester {
	want, at := e.operator == "==", e.position
	if n, ok := constantInt(e.right); ok {
		return func(f *frame) bool {
			v := left(f)
			return (v.n == n && v.isInt()) == want
		}
	}
	return func(f *frame) bool {
		a := left(f)
		b := right(f)
		if a.n == b.n && a.isString() && b.isString() {
			// Also if they share their memory: whether strings from the host do is
			// not the same on all replicas.
			f.call.work(a.size(), at)
		}
		return equal(a, b) == want
	}
}

// less is <, between two numbers or two strings.
func (c *Call) less(a, b Value, at position) bool {
	switch {
	case a.isInt() && b.isInt():
		return a.n < b.n
	case a.isString() && b.isString():
		c.work(min(a.size(), b.size()), at)
		return a.str() < b.str()
	}
	fail(at, "can't compare %s with %s", a.Kind(), b.Kind())
	return false
}
