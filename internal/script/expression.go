package script

import (
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// expression verifies one expression. Like all of the verifier it must take the
// tokens in the order of the source.
func (v *verifier) expression(e ast.Expr) expression {
	v.enter(v.at)
	defer v.leave()
	switch e := e.(type) {
	case *ast.NilExpr:
		return &constantExpr{v.take(parse.TNil), Value{}}
	case *ast.TrueExpr:
		return &constantExpr{v.take(parse.TTrue), Bool(true)}
	case *ast.FalseExpr:
		return &constantExpr{v.take(parse.TFalse), Bool(false)}
	case *ast.StringExpr:
		return &constantExpr{v.take(parse.TString, parse.TIdent), v.text(e.Value)}
	case *ast.NumberExpr:
		return v.number(e, "", v.at)
	case *ast.IdentExpr:
		return v.name(e)
	case *ast.AttrGetExpr:
		index := v.index(e)
		if from, ok := index.(*indexExpr); ok {
			v.handlers.read(from)
		}
		return index
	case *ast.FuncCallExpr:
		return v.call(e)
	case *ast.TableExpr:
		return v.table(e)
	case *ast.FunctionExpr:
		return v.functionBody(e, v.take(parse.TFunction), nil)
	case *ast.UnaryMinusOpExpr:
		at := v.take('-')
		if n, ok := e.Expr.(*ast.NumberExpr); ok { // so that the smallest integer can be written
			return v.number(n, "-", at)
		}
		return &unaryExpr{at, "-", v.expression(e.Expr)}
	case *ast.UnaryNotOpExpr:
		at := v.take(parse.TNot)
		return &unaryExpr{at, "not", v.expression(e.Expr)}
	case *ast.UnaryLenOpExpr:
		at := v.take('#')
		return &unaryExpr{at, "#", v.expression(e.Expr)}
	case *ast.LogicalOpExpr:
		left := v.expression(e.Lhs)
		at := v.take(parse.TAnd, parse.TOr)
		return &logicalExpr{at, e.Operator == "and", left, v.expression(e.Rhs)}
	case *ast.RelationalOpExpr:
		left := v.expression(e.Lhs)
		at := v.take('<', '>', parse.TLte, parse.TGte, parse.TEqeq, parse.TNeq)
		return &binaryExpr{at, e.Operator, left, v.expression(e.Rhs)}
	case *ast.ArithmeticOpExpr:
		return v.arithmetic(e)
	case *ast.StringConcatOpExpr:
		return v.concat(e)
	case *ast.Comma3Expr:
		fail(v.at, "there are no variable arguments: use a table")
	}
	fail(v.at, "this expression is not part of the language")
	return nil
}

func (v *verifier) text(s string) Value {
	if _, ok := v.texts[s]; !ok {
		v.texts[s] = String(s)
	}
	return v.texts[s]
}

func (v *verifier) number(e *ast.NumberExpr, sign string, at position) expression {
	place := v.take(parse.TNumber)
	digits, base := e.Value, 10
	if strings.HasPrefix(digits, "0x") || strings.HasPrefix(digits, "0X") {
		digits, base = digits[2:], 16
	}
	n, err := strconv.ParseInt(sign+digits, base, 64)
	switch {
	case err == nil:
		return &constantExpr{at, Int(n)}
	case base == 10 && strings.Trim(digits, "0123456789") != "":
		fail(place, "numbers are 64-bit integers: %s is not one", readable(e.Value))
	}
	fail(place, "%s%s does not fit a 64-bit integer", sign, readable(e.Value))
	return nil
}

func (v *verifier) arithmetic(e *ast.ArithmeticOpExpr) expression {
	left := v.expression(e.Lhs)
	at := v.take('+', '-', '*', '/', '%', '^')
	if e.Operator == "^" {
		fail(at, "there is no ^: multiply in a loop")
	}
	return &binaryExpr{at, e.Operator, left, v.expression(e.Rhs)}
}

// concat makes one node of a..b..c, which the tree nests to the right, so that
// no string is made in between.
func (v *verifier) concat(e *ast.StringConcatOpExpr) expression {
	n := &concatExpr{parts: []expression{v.expression(e.Lhs)}}
	for {
		at := v.take(parse.T2Comma)
		if n.position == (position{}) {
			n.position = at
		}
		next, ok := e.Rhs.(*ast.StringConcatOpExpr)
		if !ok {
			n.parts = append(n.parts, v.expression(e.Rhs))
			return n
		}
		v.count(at)
		e = next
		n.parts = append(n.parts, v.expression(e.Lhs))
	}
}

func (v *verifier) name(e *ast.IdentExpr) expression {
	at := v.take(parse.TIdent)
	if found, capture := v.resolve(v.scope, e.Value); found != nil {
		return &nameExpr{at, found, capture}
	}
	if fn := v.host[e.Value]; fn != nil {
		return &globalExpr{at, fn}
	}
	if fn := builtins[e.Value]; fn != nil {
		return &globalExpr{at, fn}
	}
	switch {
	case e.Value == "pairs" || e.Value == "ipairs":
		fail(at, "%s can only be used in for ... in %s(t)", e.Value, e.Value)
	case libraries[e.Value] != nil:
		fail(at, "%s is no value: name a function of it, such as %s.%s", e.Value, e.Value, libraries[e.Value].example)
	}
	v.unknown(e.Value, at)
	return nil
}

func (v *verifier) index(e *ast.AttrGetExpr) expression {
	if object, ok := e.Object.(*ast.IdentExpr); ok && !v.known(object.Value) && libraries[object.Value] != nil {
		key, ok := e.Key.(*ast.StringExpr)
		if !ok {
			return v.name(object) // refuses it
		}
		at := v.take(parse.TIdent)
		v.count(at)
		v.take(parse.TIdent, parse.TString)
		name := object.Value + "." + key.Value
		if fn := builtins[name]; fn != nil {
			return &globalExpr{at, fn}
		}
		v.unknown(name, at)
	}
	n := &indexExpr{object: v.expression(e.Object)}
	n.position = v.at
	n.key = v.expression(e.Key)
	return n
}

func (v *verifier) call(e *ast.FuncCallExpr) *callExpr {
	n := &callExpr{position: v.at}
	if e.Func == nil {
		n.method = true
		n.args = append(n.args, v.expression(e.Receiver))
		n.position = v.take(parse.TIdent)
		fn := builtins["string."+e.Method]
		if fn == nil || !libraries["string"].method(e.Method) {
			fail(n.position, "strings have no method %s, and others have none at all: write t.%s(...)", readable(e.Method), readable(e.Method))
		}
		n.callee = &globalExpr{n.position, fn}
	} else {
		n.callee = v.expression(e.Func)
	}
	for _, a := range e.Args {
		n.args = append(n.args, v.expression(a))
	}
	if len(n.args) > maxLocals {
		fail(n.position, "more than %d arguments", maxLocals)
	}
	if g, ok := n.callee.(*globalExpr); ok {
		if reason := g.fn.native.counts(len(n.args)); reason != "" {
			fail(n.position, "%s", reason)
		}
		checkConstants(g.fn.native, n.args)
	}
	return n
}

func (v *verifier) table(e *ast.TableExpr) expression {
	n := &tableExpr{position: v.at}
	for _, f := range e.Fields {
		v.count(v.at)
		item := tableItem{}
		if f.Key != nil {
			item.key = v.expression(f.Key)
			if k, ok := item.key.(*constantExpr); ok && k.value.IsNil() {
				fail(k.position, "nil can't be a key")
			}
		} else {
			n.list++
		}
		item.value = v.expression(f.Value)
		n.items = append(n.items, item)
	}
	return n
}

// functionBody verifies a function whose keyword was taken already. self is its
// name's variable, if it has one of its own.
func (v *verifier) functionBody(e *ast.FunctionExpr, at position, self *variable) expression {
	f := &function{position: at, parent: v.scope.function}
	if self != nil {
		self.self = f
	}
	v.scope = &scope{function: f, parent: v.scope}
	if e.ParList.HasVargs {
		fail(at, "there are no variable arguments: use a table")
	}
	for _, p := range e.ParList.Names {
		place := v.take(parse.TIdent)
		f.params = append(f.params, v.declare(p, place))
	}
	f.body = v.statements(e.Stmts)
	v.take(parse.TEnd)
	v.scope = v.scope.parent
	return &functionExpr{at, f}
}
