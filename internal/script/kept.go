package script

// The memory that a module keeps is counted, not measured: with a weight for each kind of
// object, so that it is the same number on every replica, with every version of Go.
// The weights are at least the sizes that Go's allocator uses; kept_test.go compares the two.
//
// Of the code, every node of the source counts, whether or not it can be reached from a
// function that is kept. Of values, the reachable ones count. A string counts once
// for each reference: whether two references share their memory is not part of the language.

const (
	sourceKept    = 2 // per byte: literals and, for the texts of errors, names
	functionKept  = 176
	partKept      = 24 // a parameter, argument, item or part; a local
	captureKept   = 32
	statementKept = 64
	leafKept      = 32 // a constant, a name
	nodeKept      = 72 // any other expression, a condition, a loop
	textKept      = 32 // a text for errors, beside its bytes

	stringKept  = 16 // beside its bytes; see keptByString
	tableKept   = 112
	itemKept    = 20
	fieldKept   = 40
	indexKept   = 25 // per field, on top, where fields are found by an index
	closureKept = 64
	boundKept   = 28 // a variable of an outer function
	cellKept    = 32
)

func keptBySource(source []byte) int64 { return sourceKept * int64(len(source)) }

// keptByString is a string with the rounding of its allocation: up by an eighth, or to
// whole pages if it is large.
func keptByString(size int64) int64 {
	const large, page = 32 << 10, 8 << 10
	if size > large {
		return stringKept + (size+page-1)/page*page
	}
	return stringKept + size + size/8
}

// keptByFunction is the memory of a function's code, with the functions in it.
func keptByFunction(f *function) int64 {
	return functionKept + partKept*int64(len(f.params)) + captureKept*int64(len(f.captures)) + keptByBlock(f.body)
}

func keptByBlock(body []statement) (sum int64) {
	for _, s := range body {
		sum += statementKept + keptByStatement(s)
	}
	return sum
}

func keptByStatement(s statement) int64 {
	switch s := s.(type) {
	case *localStmt:
		return partKept*int64(len(s.variables)) + keptByAll(s.values)
	case *assignStmt:
		return keptByAll(s.targets) + keptByAll(s.values)
	case *callStmt:
		return keptByExpression(s.call)
	case *doStmt:
		return keptByBlock(s.body)
	case *ifStmt:
		sum := nodeKept + keptByBlock(s.otherwise)
		for _, c := range s.clauses {
			sum += nodeKept + keptByExpression(c.condition) + keptByBlock(c.body)
		}
		return sum
	case *whileStmt:
		return nodeKept + keptByExpression(s.condition) + keptByBlock(s.body)
	case *repeatStmt:
		return nodeKept + keptByExpression(s.condition) + keptByBlock(s.body)
	case *numericForStmt:
		return 2*nodeKept + keptByAll([]expression{s.first, s.last, s.step}) + keptByBlock(s.body)
	case *genericForStmt:
		return 2*nodeKept + keptByExpression(s.table) + keptByBlock(s.body)
	case *breakStmt:
		return 0
	case *returnStmt:
		return keptByExpression(s.value)
	}
	panic("a statement without weight")
}

func keptByAll(list []expression) (sum int64) {
	for _, e := range list {
		sum += partKept + keptByExpression(e)
	}
	return sum
}

// keptByExpression is the memory of an expression; nil is an absent one.
func keptByExpression(e expression) int64 {
	switch e := e.(type) {
	case nil:
		return 0
	case *constantExpr, *nameExpr, *globalExpr:
		return leafKept
	case *indexExpr:
		return nodeKept + textKept + keptByExpression(e.object) + keptByExpression(e.key)
	case *callExpr:
		return nodeKept + textKept + keptByExpression(e.callee) + keptByAll(e.args)
	case *unaryExpr:
		return nodeKept + keptByExpression(e.operand)
	case *binaryExpr:
		return nodeKept + keptByExpression(e.left) + keptByExpression(e.right)
	case *logicalExpr:
		return nodeKept + keptByExpression(e.left) + keptByExpression(e.right)
	case *concatExpr:
		return nodeKept + keptByAll(e.parts)
	case *tableExpr:
		sum := int64(nodeKept)
		for _, i := range e.items {
			sum += partKept + keptByExpression(i.key) + keptByExpression(i.value)
		}
		return sum
	case *functionExpr:
		return nodeKept + keptByFunction(e.fn)
	}
	panic("an expression without weight")
}
