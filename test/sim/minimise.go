package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// least removes items for as long as what is left fails: all at first, then halves, quarters and so on. In
// the end none can be removed by itself, as in delta debugging (Zeller and Hildebrandt), whose tests of
// single parts are those of half of the rest here. fails may say no to everything, to end it.
func least[T any](items []T, fails func([]T) bool) []T {
	for size := len(items); size > 0; {
		removed := false
		for from := 0; from < len(items); {
			rest := append(append([]T{}, items[:from]...), items[min(from+size, len(items)):]...)
			if !fails(rest) {
				from += size
				continue
			}
			items, removed = rest, true
		}
		if size > 1 || !removed {
			size = min(size/2, (len(items)+1)/2)
		}
	}
	return items
}

// minimised is a shorter run in which the same check fails as in a whole one.
type minimised struct {
	Options
	report Report
	whole  Report
	tried  int // runs
}

// minimise looks for one in up to so many runs: it ends the whole run earlier, leaves troubles out, and
// ends what is left of it earlier, too. Once a trouble is left out, whatever comes later happens at other
// moments, and may fail or not by chance: what it returns fails, but less might. So that a failure may also
// come later, runs without some troubles have all the time that the seed gives them.
func minimise(o Options, whole Report, most int) *minimised {
	all := o.Length
	o.Log, o.whole, o.Length = nil, whole.planned, whole.Length
	m := &minimised{Options: o, report: whole, whole: whole}
	fails := func(o Options) bool {
		if m.tried == most {
			return false
		}
		m.tried++
		r := Run(o)
		if r.Check != whole.Check {
			return false
		}
		o.Length = r.Length
		m.Options, m.report = o, r
		return true
	}
	m.shorten(fails)
	least(numbers(m.report.Troubles), func(only []int) bool {
		o := m.Options
		o.Only, o.Length = only, all
		return fails(o)
	})
	m.shorten(fails)
	return m
}

// shorten halves the interval in which the time lies at which a run must not end to fail, to a tenth of
// the run: where it lies, if that is one time only.
func (m *minimised) shorten(fails func(Options) bool) {
	for passes := time.Duration(0); m.Length-passes > m.Length/10; {
		o := m.Options
		if o.Length = (passes + m.Length) / 2; !fails(o) {
			passes = o.Length
		}
	}
}

func numbers(troubles []*Trouble) []int {
	list := []int{}
	for _, t := range troubles {
		list = append(list, t.N)
	}
	return list
}

// flags name the troubles and the length, for a run by hand.
func (m *minimised) flags() string {
	s := fmt.Sprintf("-seed=%d -runs=1 -length=%v", m.Seed, m.Length)
	if m.Turns != nil {
		s += " -turns=" + formatTurns(m.Turns)
	}
	if m.Only != nil {
		s += " -only=" + formatOnly(m.Only)
	}
	return s
}

// describe is what an engineer wants to see of a failure. more are the flags that the whole run had, too.
func (m *minimised) describe(more string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "Minimised in %d runs: %d of %d troubles, in %v of %v. To repeat it:\n    %s%s\n%s at %v of it\n",
		m.tried, len(m.report.Troubles), len(m.whole.Troubles), m.Length, m.whole.Length, m.flags(), more, m.report.Check, m.report.Stats.Simulated)
	for _, t := range m.report.Troubles {
		fmt.Fprintln(&s, t)
	}
	return s.String()
}

// formatOnly and parseOnly are the form of a list of troubles as a flag.
func formatOnly(only []int) string {
	if len(only) == 0 {
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(only), " ", ","), "[]")
}

func parseOnly(s string) (only []int, err error) {
	switch s {
	case "":
		return nil, nil
	case "none":
		return []int{}, nil
	}
	for field := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("-only: %w", err)
		}
		only = append(only, n)
	}
	return only, nil
}
