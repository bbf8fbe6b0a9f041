package script

import "math/bits"

// arithmetic compiles + - * / %, with code of its own for a local and a constant
// or another local under + and -.
func (k *compiler) arithmetic(e *binaryExpr) evaluator {
	left, right := k.expression(e.left), k.expression(e.right)
	at, op := e.position, e.operator
	slot, isLocal := local(e.left)
	if n, ok := constantInt(e.right); ok && isLocal && (op == "+" || op == "-" && n != -n) {
		if op == "-" {
			n = -n
		}
		return func(f *frame) Value {
			v := f.slots[slot]
			sum := v.n + n
			if !v.isInt() || (v.n^sum)&(n^sum) < 0 {
				return compute(op, v, right(f), at)
			}
			return Int(sum)
		}
	}
	switch op {
	case "+":
		return func(f *frame) Value {
			a := left(f)
			b := right(f)
			sum := a.n + b.n
			if !a.isInt() || !b.isInt() || (a.n^sum)&(b.n^sum) < 0 {
				return compute(op, a, b, at)
			}
			return Int(sum)
		}
	case "-":
		return func(f *frame) Value {
			a := left(f)
			b := right(f)
			difference := a.n - b.n
			if !a.isInt() || !b.isInt() || (a.n^b.n)&(a.n^difference) < 0 {
				return compute(op, a, b, at)
			}
			return Int(difference)
		}
	}
	return func(f *frame) Value {
		a := left(f)
		return compute(op, a, right(f), at)
	}
}

// compute is arithmetic with all its errors: exact or refused.
func compute(op string, a, b Value, at position) Value {
	if !a.isInt() || !b.isInt() {
		wrong := a
		if a.isInt() {
			wrong = b
		}
		fail(at, "%s wants numbers, not %s%s", op, wrong.Kind(), hint(wrong))
	}
	x, y, r, exact := a.n, b.n, int64(0), true
	switch op {
	case "+":
		r = x + y
		exact = (x^r)&(y^r) >= 0
	case "-":
		r = x - y
		exact = (x^y)&(x^r) >= 0
	case "*":
		r, exact = multiply(x, y)
	default:
		if y == 0 {
			fail(at, "division by zero")
		}
		r = x / y
		exact = y != -1 || x != -x || x == 0
		rest := x - r*y
		if rest != 0 && (rest < 0) != (y < 0) { // rounded down, not towards zero
			r--
			rest += y
		}
		if op == "%" {
			r, exact = rest, true
		}
	}
	if !exact {
		fail(at, "integer overflow")
	}
	return Int(r)
}

func multiply(x, y int64) (product int64, exact bool) {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	high := int64(hi)
	if x < 0 {
		high -= y
	}
	if y < 0 {
		high -= x
	}
	return int64(lo), high == int64(lo)>>63
}

// hint is added to the error if a string, such as a key's value, is used as a number.
func hint(v Value) string {
	if v.isString() {
		return ": use tonumber"
	}
	return ""
}
