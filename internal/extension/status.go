package extension

import (
	"fmt"
	"strconv"
	"strings"
)

// Standing is kept in the key /em/NAME/state, for operators to see and to change: how
// an extension stands. A missing key means enabled.
type Standing struct {
	Disabled bool
	Failures int    // of requests in a row in which it exceeded a limit
	Reason   string // of the last failure, or why it is disabled
}

// String is the value of the key.
func (s Standing) String() string {
	switch {
	case s.Disabled:
		return "disabled: " + s.Reason
	case s.Failures > 0:
		return fmt.Sprintf("failing %d: %s", s.Failures, s.Reason)
	}
	return "enabled"
}

// ParseStanding decodes the value of the key. A missing or invalid value counts as
// enabled.
func ParseStanding(value []byte) Standing {
	word, reason, _ := strings.Cut(string(value), ": ")
	switch {
	case word == "disabled":
		return Standing{Disabled: true, Reason: reason}
	case strings.HasPrefix(word, "failing "):
		if n, err := strconv.Atoi(word[len("failing "):]); err == nil && n > 0 {
			return Standing{Failures: n, Reason: reason}
		}
	}
	return Standing{}
}

// Fail is the standing after it exceeded a limit in one more request.
func (s Standing) Fail(reason string, l *Limits) Standing {
	n := s.Failures + 1
	if l.Failures > 0 && n >= l.Failures {
		return Standing{Disabled: true, Reason: fmt.Sprintf("%d requests in a row exceeded a limit, the last: %s", n, reason)}
	}
	return Standing{Failures: n, Reason: reason}
}
