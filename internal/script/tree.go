package script

// The verifier's result: a tree in which every name is resolved and everything
// has its place in the source. It can represent only constructs of the
// language.

type expression interface{ pos() position }
type statement interface{ pos() position }

func (p position) pos() position { return p }

// A variable is a local or a parameter.
type variable struct {
	name     string
	owner    *function
	captured bool // some inner function uses it
	assigned bool // more than once, that is: after its declaration
	// self is the function whose name this is, as `local function` makes it.
	self *function
	slot int // in the owner's frame, while it is in scope
}

// boxed variables live in a cell, because two functions see them change. Others
// are copied into the functions that use them.
func (v *variable) boxed() bool { return v.captured && v.assigned }

type function struct {
	position
	parent   *function // nil for the file
	params   []*variable
	body     []statement
	captures []capture
}

// capture is a variable of an outer function: the parent's own, or the
// parent's capture number from.
type capture struct {
	variable *variable
	from     int // -1: the parent's own
}

type (
	constantExpr struct {
		position
		value Value
	}
	nameExpr struct {
		position
		variable *variable
		capture  int // -1: of this function
	}
	globalExpr struct { // a builtin or a host function
		position
		fn *closure
	}
	indexExpr struct {
		position
		object, key expression
	}
	callExpr struct {
		position
		callee expression
		args   []expression
		method bool // s:name(...), with s among the args
	}
	unaryExpr struct {
		position
		operator string
		operand  expression
	}
	binaryExpr struct { // arithmetic and comparisons
		position
		operator    string
		left, right expression
	}
	logicalExpr struct {
		position
		and         bool
		left, right expression
	}
	concatExpr struct {
		position
		parts []expression
	}
	tableExpr struct {
		position
		items []tableItem
		list  int // how many items have no key
	}
	tableItem struct {
		key   expression // nil: the next of the sequence
		value expression
	}
	functionExpr struct {
		position
		fn *function
	}
)

type (
	localStmt struct {
		position
		variables []*variable
		values    []expression
	}
	assignStmt struct {
		position
		targets, values []expression
	}
	callStmt struct {
		position
		call *callExpr
	}
	doStmt struct {
		position
		body []statement
	}
	ifStmt struct {
		position
		clauses   []clause
		otherwise []statement
	}
	clause struct {
		position
		condition expression
		body      []statement
	}
	whileStmt struct {
		position
		condition expression
		body      []statement
	}
	repeatStmt struct {
		position
		body      []statement
		condition expression
	}
	numericForStmt struct {
		position
		variable          *variable
		first, last, step expression // step may be nil
		body              []statement
	}
	genericForStmt struct {
		position
		sequence   bool // ipairs
		key, value *variable
		table      expression
		body       []statement
	}
	breakStmt  struct{ position }
	returnStmt struct {
		position
		value expression // may be nil
	}
)
