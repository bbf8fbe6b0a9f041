package script

import (
	"bytes"
	"io"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// tokens reads the source's tokens one by one, with the parser's own scanner.
// They are read twice: before parsing, so that the parser never gets a source that
// would need much memory (its stack takes 350 bytes per open bracket), and in step with
// the tree, which has lines but no columns.
type tokens struct {
	scanner *parse.Scanner
	state   *parse.Lexer
	last    position // of the last token before the end
}

func newTokens(source []byte, pause func()) *tokens {
	return &tokens{scanner: parse.NewScanner(reading(source, pause), ""), state: &parse.Lexer{}, last: position{1, 1}}
}

// reading reads a source, which is how far the scanner and the parser can be interrupted.
func reading(source []byte, pause func()) io.Reader {
	if pause == nil {
		return bytes.NewReader(source)
	}
	return &pausing{source: source, pause: pause}
}

// pausing is a reader of a source that pauses before each piece of it.
type pausing struct {
	source []byte // what is left
	pause  func()
}

const piece = 1 << 10

func (p *pausing) Read(to []byte) (int, error) {
	if len(p.source) == 0 {
		return 0, io.EOF
	}
	p.pause()
	n := copy(to[:min(len(to), piece)], p.source)
	p.source = p.source[n:]
	return n, nil
}

// next returns the next token; its type is parse.EOF at the end.
func (t *tokens) next() (ast.Token, position, error) {
	tok, err := t.scanner.Scan(t.state)
	if tok.Pos.Line == parse.EOF {
		return tok, t.last, err
	}
	t.last = position{int32(tok.Pos.Line), int32(max(tok.Pos.Column, 1))}
	return tok, t.last, err
}

// check refuses sources that must not reach the parser, by their tokens alone.
func check(source []byte, b Bounds) {
	if len(source) > b.Source {
		fail(position{}, "the source has %d bytes, the limit is %d", len(source), b.Source)
	}
	lines := lineStarts(source)
	// operators[i] counts those of the expression that bracket or block i is in.
	operators := make([]int, 1, b.Nesting+1)
	var open brackets
	var before ast.Token
	for t := newTokens(source, b.Pause); ; {
		tok, at, err := t.next()
		if err != nil {
			fail(at, "%s", scanReason(err))
		}
		if tok.Type == '/' && before.Type == '/' {
			fail(at, "there is no //: / rounds down already, and comments begin with --")
		}
		before = tok
		switch tok.Type {
		case parse.EOF:
			open.end(at)
			return
		case parse.TString:
			checkEscapes(source[min(lines[at.line-1]+int(at.column)-1, len(source)):], at)
		case '(', '{', '[', parse.TFunction, parse.TDo, parse.TIf, parse.TRepeat:
			if len(operators) > b.Nesting {
				fail(at, "nested more than %d deep: split it into local functions", b.Nesting)
			}
			operators = append(operators, 0)
		case ')', '}', ']', parse.TEnd, parse.TUntil:
			operators = operators[:max(1, len(operators)-1)]
		case '+', '-', '*', '/', '%', '^', '#', '<', '>', parse.TEqeq, parse.TNeq, parse.TLte, parse.TGte,
			parse.T2Comma, parse.TAnd, parse.TOr, parse.TNot:
			if operators[len(operators)-1]++; operators[len(operators)-1] > b.Nesting {
				fail(at, "more than %d operators in one expression: split it with locals", b.Nesting)
			}
		case ',', ';', '=', parse.TLocal, parse.TReturn, parse.TThen, parse.TElse, parse.TElseIf, parse.TWhile, parse.TFor, parse.TIn:
			operators[len(operators)-1] = 0
		}
		open.take(tok, at)
	}
}

// lineStarts are the offsets at which lines begin, by the scanner's rule: CR, LF
// or both in either order end one.
func lineStarts(source []byte) []int {
	starts := []int{0}
	for i := 0; i < len(source); i++ {
		c := source[i]
		if c != '\n' && c != '\r' {
			continue
		}
		if i+1 < len(source) && (source[i+1] == '\n' || source[i+1] == '\r') && source[i+1] != c {
			i++
		}
		starts = append(starts, i+1)
	}
	return starts
}

// checkEscapes refuses the escapes that the scanner would read as something
// else than their writer meant: it knows those of Lua 5.1 and drops the
// backslash of all others.
func checkEscapes(literal []byte, at position) {
	if len(literal) == 0 || literal[0] == '[' {
		return
	}
	for i := 1; i < len(literal) && literal[i] != literal[0]; i++ {
		if literal[i] != '\\' || i+1 == len(literal) {
			continue
		}
		i++
		c := literal[i]
		if c < '0' || c > '9' {
			if strings.IndexByte("abfnrtv\\\"'\n\r", c) < 0 {
				fail(at, "unknown escape in a string: write \\ddd with three decimal digits for a byte")
			}
			continue
		}
		n := 0
		for j := i; j < min(i+3, len(literal)) && literal[j] >= '0' && literal[j] <= '9'; j++ {
			n = 10*n + int(literal[j]-'0')
		}
		if n > 255 {
			fail(at, "escape \\%d in a string: a byte is at most 255", n)
		}
	}
}

func scanReason(err error) string {
	e, ok := err.(*parse.Error)
	if !ok {
		return "can't be read"
	}
	switch {
	case strings.HasPrefix(e.Message, "unterminated"):
		return "the string is not closed"
	case e.Message == "invalid multiline comment":
		return "the comment is not closed"
	case e.Message == "invalid multiline string":
		return "this is neither [[ nor [=["
	case e.Message == "illegal hexadecimal number":
		return "0x without digits"
	}
	return "unexpected character " + quoted(e.Token)
}

func quoted(s string) string { return "`" + readable(s) + "`" }

// parseSource calls the parser, whose errors have the place where it had read
// to, and whose panics it swallows itself.
func parseSource(source []byte, pause func()) []ast.Stmt {
	statements, err := parse.Parse(reading(source, pause), "")
	if err == nil && statements != nil {
		return statements
	}
	e, ok := err.(*parse.Error)
	if !ok {
		panic("the parser failed")
	}
	// Where the scanner stood when the parser gave up is the end of the token
	// that it could not use; the error should have its beginning.
	t := newTokens(source, pause)
	for {
		tok, at, err := t.next()
		switch {
		case err != nil || tok.Type == parse.EOF:
			fail(at, "the source ends here, but an `end`, a bracket or a value is missing")
		case strings.HasPrefix(e.Message, "ambiguous"):
			if tok.Pos == e.Pos {
				fail(at, "is this a call or a new statement? put the ( on the line before, or a ; in between")
			}
		case t.scanner.Pos == e.Pos:
			fail(at, "unexpected %s", quoted(tok.Str))
		}
	}
}
