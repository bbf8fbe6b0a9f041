package script

import (
	"fmt"
	"strings"
)

// Error is why a source was refused or a run has ended early. Its text is the
// same on every replica.
type Error struct {
	Line, Column int // from 1; 0 where there is no place to point to
	Reason       string
	// Limit says that a limit was exceeded, or that the host said so.
	Limit bool
	// Panic is the value of a panic in a host function or in this package. It is for
	// the log of this server alone: Reason says no more than that it happened.
	Panic any

	cause error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d:%d: %s", e.Line, e.Column, e.Reason)
}

// Unwrap is the error that a host function returned, if that was the reason.
func (e *Error) Unwrap() error { return e.cause }

// position is a place in the source, counted from 1. Columns are bytes.
type position struct{ line, column int32 }

// failure is how an error leaves nested code: by panic, up to the one recover
// at the entry. Returning it through every node would cost each of them a comparison,
// and no code in between handles it.
type failure struct{ err *Error }

func fail(at position, format string, args ...any) {
	panic(failure{&Error{Line: int(at.line), Column: int(at.column), Reason: fmt.Sprintf(format, args...)}})
}

// maxReason bounds the text of an error, which a script can choose, in bytes.
const maxReason = 512

// readable is a text from a script as it may go into an error: of a long one the beginning
// and the end, where the reason tends to be.
func readable(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason/2] + " ... " + s[len(s)-maxReason/2:]
	}
	return strings.ToValidUTF8(s, "?")
}

// recovered turns the result of recover into an error.
func recovered(r any) *Error {
	if f, ok := r.(failure); ok {
		return f.err
	}
	return &Error{Reason: "internal error", Panic: r}
}
