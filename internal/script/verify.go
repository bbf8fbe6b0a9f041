package script

import (
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// verifier turns the parser's tree into that of tree.go, in the order of the source, and
// refuses all nodes that it doesn't know. It reads the tokens in step, for the columns.
type verifier struct {
	bounds Bounds
	tokens *tokens
	token  ast.Token // the next one that shows in the tree
	at     position

	host  map[string]*closure
	texts map[string]Value // so that equal literals are found equal at a glance
	nodes int
	depth int
	scope *scope

	handlers handlers
}

// scope is a function that is being read.
type scope struct {
	function *function
	parent   *scope
	active   []*variable // visible, innermost last
	blocks   []int       // len(active) at the start of each open block
	loops    int
}

func verify(source []byte, b Bounds, host map[string]*closure) *function {
	v := newVerifier(source, b, host)
	return v.file(parseSource(source, b.Pause))
}

func newVerifier(source []byte, b Bounds, host map[string]*closure) *verifier {
	v := &verifier{bounds: b, tokens: newTokens(source, b.Pause), host: host, texts: map[string]Value{}}
	v.advance()
	return v
}

// advance goes to the next token that has a counterpart in the tree. Brackets
// and separators have none; all others come in the order in which the tree is
// walked.
func (v *verifier) advance() {
	for {
		tok, at, err := v.tokens.next()
		if err != nil {
			tok.Type = parse.EOF
		}
		switch tok.Type {
		case '(', ')', '{', '}', '[', ']', ',', ';', '=', '.', ':':
			continue
		}
		v.token, v.at = tok, at
		return
	}
}

// take returns the position of a token, and advances. The tree can't have another node
// there: the tokens also resolve the ambiguities of the tree.
func (v *verifier) take(kinds ...int) position {
	at := v.at
	for _, k := range kinds {
		if v.token.Type == k {
			v.advance()
			return at
		}
	}
	panic("the tree and the tokens have come apart")
}

// enter counts a node and a level of nesting; leave ends the level.
func (v *verifier) enter(at position) {
	if v.depth++; v.depth > v.bounds.Nesting {
		fail(at, "nested more than %d deep: split it into local functions", v.bounds.Nesting)
	}
	v.count(at)
}

func (v *verifier) count(at position) {
	if v.nodes++; v.nodes > v.bounds.Nodes {
		fail(at, "the program has more than %d nodes: make it smaller", v.bounds.Nodes)
	}
}

func (v *verifier) leave() { v.depth-- }

// file allows at the top level only statements that can't keep state between calls.
func (v *verifier) file(statements []ast.Stmt) *function {
	f := &function{position: position{1, 1}}
	v.scope = &scope{function: f}
	for i, s := range statements {
		at := v.at
		switch s.(type) {
		case *ast.LocalAssignStmt, *ast.AssignStmt, *ast.FuncDefStmt:
		case *ast.ReturnStmt:
			if i != len(statements)-1 {
				fail(at, "return must be the last statement")
			}
		default:
			fail(at, "outside of functions there can only be locals, local functions and one return at the end")
		}
		f.body = append(f.body, v.statement(s))
	}
	if n := len(f.body); n > 0 {
		if r, ok := f.body[n-1].(*returnStmt); ok && r.value != nil {
			v.handlers.check(f, v.bounds.Handlers)
			return f
		}
	}
	fail(v.at, "the file must end with return { ... }")
	return nil
}

func (v *verifier) block(statements []ast.Stmt) []statement {
	v.open()
	body := v.statements(statements)
	v.close()
	return body
}

func (v *verifier) statements(statements []ast.Stmt) []statement {
	body := make([]statement, 0, len(statements))
	for _, s := range statements {
		body = append(body, v.statement(s))
	}
	return body
}

func (v *verifier) statement(s ast.Stmt) statement {
	v.enter(v.at)
	defer v.leave()
	switch s := s.(type) {
	case *ast.LocalAssignStmt:
		return v.local(s)
	case *ast.AssignStmt:
		return v.assign(s)
	case *ast.FuncCallStmt:
		at := v.at
		if call, ok := s.Expr.(*ast.FuncCallExpr); ok {
			return &callStmt{at, v.call(call)}
		}
	case *ast.DoBlockStmt:
		n := &doStmt{position: v.take(parse.TDo)}
		n.body = v.block(s.Stmts)
		v.take(parse.TEnd)
		return n
	case *ast.IfStmt:
		return v.ifStatement(s)
	case *ast.WhileStmt:
		n := &whileStmt{position: v.take(parse.TWhile)}
		n.condition = v.expression(s.Condition)
		v.take(parse.TDo)
		n.body = v.loop(s.Stmts)
		v.take(parse.TEnd)
		return n
	case *ast.RepeatStmt:
		return v.repeat(s)
	case *ast.NumberForStmt:
		return v.numericFor(s)
	case *ast.GenericForStmt:
		return v.genericFor(s)
	case *ast.BreakStmt:
		n := &breakStmt{v.take(parse.TBreak)}
		if v.scope.loops == 0 {
			fail(n.position, "break outside of a loop")
		}
		return n
	case *ast.ReturnStmt:
		return v.returnStatement(s)
	}
	return v.refuse(s)
}

// refuse says why a statement that Lua has is not part of the language.
func (v *verifier) refuse(s ast.Stmt) statement {
	switch s := s.(type) {
	case *ast.FuncDefStmt:
		switch {
		case s.Name.Method != "":
			fail(v.at, "there are no methods: write local function %s(self, ...) ... end", readable(s.Name.Method))
		case isName(s.Name.Func):
			fail(v.at, "there are no global functions: write local function %s", readable(s.Name.Func.(*ast.IdentExpr).Value))
		}
		fail(v.at, "write t.name = function(...) ... end")
	case *ast.GotoStmt:
		fail(v.at, "there is no goto: use while, break or a local function")
	case *ast.LabelStmt:
		fail(v.at, "there are no labels")
	}
	fail(v.at, "this statement is not part of the language")
	return nil
}

func isName(e ast.Expr) bool {
	_, ok := e.(*ast.IdentExpr)
	return ok
}

func (v *verifier) local(s *ast.LocalAssignStmt) statement {
	at := v.take(parse.TLocal)
	if v.token.Type == parse.TFunction { // the tree doesn't tell it from local f = function
		return v.localFunction(s, at)
	}
	places := make([]position, len(s.Names))
	for i := range s.Names {
		places[i] = v.take(parse.TIdent)
	}
	n := &localStmt{position: at}
	n.values = v.values(s.Exprs, len(s.Names), at)
	for i, name := range s.Names {
		n.variables = append(n.variables, v.declare(name, places[i]))
	}
	return n
}

func (v *verifier) localFunction(s *ast.LocalAssignStmt, at position) statement {
	f, ok := s.Exprs[0].(*ast.FunctionExpr)
	if !ok || len(s.Names) != 1 {
		fail(at, "this statement is not part of the language")
	}
	place := v.take(parse.TFunction)
	name := v.declare(s.Names[0], v.at)
	v.take(parse.TIdent)
	value := v.functionBody(f, place, name)
	return &localStmt{position: at, variables: []*variable{name}, values: []expression{value}}
}

// values are the right side of a declaration or assignment to n names. A call
// has one value, so the counts can be compared here.
func (v *verifier) values(exprs []ast.Expr, n int, at position) []expression {
	if len(exprs) > n {
		fail(at, "%d values for %d names", len(exprs), n)
	}
	values := make([]expression, 0, len(exprs))
	for i, e := range exprs {
		if _, call := e.(*ast.FuncCallExpr); call && i == len(exprs)-1 && n > len(exprs) {
			fail(v.at, "a function returns one value, here are %d names for it: return a table", n-i)
		}
		values = append(values, v.expression(e))
	}
	return values
}

func (v *verifier) assign(s *ast.AssignStmt) statement {
	n := &assignStmt{position: v.at}
	for _, target := range s.Lhs {
		n.targets = append(n.targets, v.target(target))
	}
	if len(s.Rhs) < len(s.Lhs) {
		if _, call := s.Rhs[len(s.Rhs)-1].(*ast.FuncCallExpr); !call {
			fail(n.position, "%d values for %d names", len(s.Rhs), len(s.Lhs))
		}
	}
	n.values = v.values(s.Rhs, len(s.Lhs), n.position)
	return n
}

func (v *verifier) target(e ast.Expr) expression {
	v.enter(v.at)
	defer v.leave()
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		if name, ok := e.Object.(*ast.IdentExpr); ok && !v.known(name.Value) && libraries[name.Value] != nil {
			fail(v.at, "%s can't be changed", name.Value)
		}
		index := v.index(e)
		if to, ok := index.(*indexExpr); ok {
			v.handlers.wrote(to)
		}
		return index
	case *ast.IdentExpr:
		at := v.take(parse.TIdent)
		found, capture := v.resolve(v.scope, e.Value)
		switch {
		case found == nil:
			fail(at, "there are no globals: write local %s = ...", readable(e.Value))
		case capture >= 0 && found.owner.parent == nil:
			fail(at, "%s is a local of the file, and nothing is kept between calls: use put", readable(e.Value))
		}
		found.assigned = true
		return &nameExpr{at, found, capture}
	}
	fail(v.at, "can't assign to this")
	return nil
}

// ifStatement makes one list of an elseif chain, which the tree nests.
func (v *verifier) ifStatement(s *ast.IfStmt) statement {
	n := &ifStmt{position: v.at}
	for {
		c := clause{position: v.take(parse.TIf, parse.TElseIf)}
		v.count(c.position)
		c.condition = v.expression(s.Condition)
		v.take(parse.TThen)
		c.body = v.block(s.Then)
		n.clauses = append(n.clauses, c)
		if v.token.Type != parse.TElseIf {
			break
		}
		next, ok := s.Else[0].(*ast.IfStmt)
		if !ok {
			fail(v.at, "this statement is not part of the language")
		}
		s = next
	}
	if v.token.Type == parse.TElse {
		v.take(parse.TElse)
		n.otherwise = v.block(s.Else)
	}
	v.take(parse.TEnd)
	return n
}

func (v *verifier) loop(statements []ast.Stmt) []statement {
	v.scope.loops++
	body := v.block(statements)
	v.scope.loops--
	return body
}

func (v *verifier) repeat(s *ast.RepeatStmt) statement {
	n := &repeatStmt{position: v.take(parse.TRepeat)}
	v.open() // the condition sees the body's locals
	v.scope.loops++
	n.body = v.statements(s.Stmts)
	v.scope.loops--
	v.take(parse.TUntil)
	n.condition = v.expression(s.Condition)
	v.close()
	return n
}

func (v *verifier) numericFor(s *ast.NumberForStmt) statement {
	n := &numericForStmt{position: v.take(parse.TFor)}
	place := v.take(parse.TIdent)
	n.first = v.expression(s.Init)
	n.last = v.expression(s.Limit)
	if s.Step != nil {
		n.step = v.expression(s.Step)
	}
	v.take(parse.TDo)
	v.open()
	n.variable = v.declare(s.Name, place)
	n.body = v.loop(s.Stmts)
	v.close()
	v.take(parse.TEnd)
	return n
}

func (v *verifier) genericFor(s *ast.GenericForStmt) statement {
	n := &genericForStmt{position: v.take(parse.TFor)}
	places := make([]position, len(s.Names))
	for i := range s.Names {
		places[i] = v.take(parse.TIdent)
	}
	v.take(parse.TIn)
	n.table, n.sequence = v.walked(s.Exprs)
	if len(s.Names) > 2 {
		fail(places[2], "pairs and ipairs give a key and a value: at most two names")
	}
	v.take(parse.TDo)
	v.open()
	n.key = v.declare(s.Names[0], places[0])
	if len(s.Names) == 2 {
		n.value = v.declare(s.Names[1], places[1])
	}
	n.body = v.loop(s.Stmts)
	v.close()
	v.take(parse.TEnd)
	return n
}

// walked is t in `in pairs(t)` or `in ipairs(t)`, the only two forms.
func (v *verifier) walked(exprs []ast.Expr) (table expression, sequence bool) {
	at := v.at
	if len(exprs) == 1 {
		if call, ok := exprs[0].(*ast.FuncCallExpr); ok && call.Func != nil && len(call.Args) == 1 {
			name, ok := call.Func.(*ast.IdentExpr)
			if ok && (name.Value == "pairs" || name.Value == "ipairs") && !v.known(name.Value) {
				v.take(parse.TIdent)
				return v.expression(call.Args[0]), name.Value == "ipairs"
			}
		}
	}
	fail(at, "for goes over pairs(t) or ipairs(t) only")
	return nil, false
}

func (v *verifier) returnStatement(s *ast.ReturnStmt) statement {
	n := &returnStmt{position: v.take(parse.TReturn)}
	if len(s.Exprs) > 1 {
		fail(n.position, "a function returns one value: return a table")
	}
	if len(s.Exprs) == 1 {
		n.value = v.expression(s.Exprs[0])
		v.handlers.answered(v.scope.function, n.value)
	}
	return n
}
