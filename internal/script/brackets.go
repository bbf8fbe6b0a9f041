package script

import (
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// brackets tracks the brackets and blocks open at a token, so that the error for an
// unclosed one has the place where it opens. Lua's parser only knows the token at which
// it fails.
type brackets struct {
	open []bracket
}

// bracket is (, {, [, or a word that an end or until closes.
type bracket struct {
	kind int
	at   position
}

// closers are the closing tokens of each; words are the names of those that are no character.
var (
	closers = map[int]int{
		'(': ')', '{': '}', '[': ']',
		parse.TFunction: parse.TEnd, parse.TDo: parse.TEnd, parse.TIf: parse.TEnd, parse.TRepeat: parse.TUntil,
	}
	words = map[int]string{
		parse.TFunction: "function", parse.TDo: "do", parse.TIf: "if", parse.TRepeat: "repeat",
		parse.TEnd: "end", parse.TUntil: "until",
	}
)

func bracketText(kind int) string {
	if w := words[kind]; w != "" {
		return "`" + w + "`"
	}
	return "`" + string(rune(kind)) + "`"
}

// take follows one token, and refuses it if something must be closed before it.
func (b *brackets) take(tok ast.Token, at position) {
	switch tok.Type {
	case parse.TThen, parse.TElse, parse.TElseIf, parse.TLocal, parse.TReturn, parse.TIf, parse.TWhile, parse.TFor,
		parse.TRepeat, parse.TBreak, parse.TDo, parse.TIn, parse.TEnd, parse.TUntil:
		if n := len(b.open); n > 0 && words[b.open[n-1].kind] == "" {
			b.open[n-1].unclosed(at, tok)
		}
	}
	switch tok.Type {
	case ')', '}', ']', parse.TEnd, parse.TUntil:
		n := len(b.open)
		if n == 0 {
			fail(at, "%s closes nothing", bracketText(tok.Type))
		}
		if last := b.open[n-1]; closers[last.kind] != tok.Type {
			last.unclosed(at, tok)
		}
		b.open = b.open[:n-1]
	default:
		if closers[tok.Type] != 0 {
			b.open = append(b.open, bracket{tok.Type, at})
		}
	}
}

func (open bracket) unclosed(at position, tok ast.Token) {
	fail(at, "%s of line %d, column %d is not closed with %s before %s",
		bracketText(open.kind), open.at.line, open.at.column, bracketText(closers[open.kind]), quoted(tok.Str))
}

// end refuses the end of the source where something is open.
func (b *brackets) end(at position) {
	if n := len(b.open); n > 0 {
		open := b.open[n-1]
		fail(at, "the source ends here, but %s of line %d, column %d is not closed with %s",
			bracketText(open.kind), open.at.line, open.at.column, bracketText(closers[open.kind]))
	}
}
