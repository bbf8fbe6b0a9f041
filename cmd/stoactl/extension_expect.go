package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stoa-kv/stoa/internal/rehearsal"
)

// expectation is a line of a script with an expected result of the request
// above it: the keyword and the text of a line that is printed for it.
type expectation struct {
	line       int
	word, text string
}

var expectable = []string{"answer", "error", "ran", "log", "change", "notice", "watch"}

// readExpectation reads the line behind its "=".
func readExpectation(line int, s string) (expectation, error) {
	word, text, _ := strings.Cut(strings.TrimSpace(s), " ")
	if !slices.Contains(expectable, word) {
		return expectation{}, fmt.Errorf("line %d: want = and one of %s, and the text that is printed behind it", line, strings.Join(expectable, ", "))
	}
	return expectation{line, word, strings.TrimSpace(text)}, nil
}

// disappointed lists the expectations that the report of a request doesn't
// meet, and its unexpected failures. Failures are expected by a part of their
// text; with tolerant, none has to be.
func (s *scripted) disappointed(printed []item, report *rehearsal.Report, tolerant bool) (all []string) {
	say := func(line int, format string, args ...any) {
		all = append(all, fmt.Sprintf("%s:%d: %s", s.from, line, fmt.Sprintf(format, args...)))
	}
	failures := failuresOf(report)
	for _, e := range s.wants {
		if e.word == "error" {
			i := slices.IndexFunc(failures, func(err error) bool { return strings.Contains(err.Error(), e.text) })
			if i < 0 {
				say(e.line, "there was no error %q", e.text)
				continue
			}
			failures = slices.Delete(failures, i, i+1)
		} else if !slices.ContainsFunc(printed, func(i item) bool { return i.word == e.word && strings.TrimSpace(i.text) == e.text }) {
			say(e.line, "there was no %s %s", e.word, e.text)
		}
	}
	if !tolerant {
		for _, err := range failures {
			say(s.line, "failed: %v", err)
		}
	}
	return all
}

// failuresOf are the errors of a request and of the handlers that it triggered.
func failuresOf(report *rehearsal.Report) (all []error) {
	if report.Err != nil {
		all = append(all, report.Err)
	}
	for _, run := range report.Runs {
		if run.Err != nil && !errors.Is(report.Err, run.Err) {
			all = append(all, run.Err)
		}
	}
	return all
}
