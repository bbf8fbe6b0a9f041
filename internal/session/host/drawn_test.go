package host

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// findings are what a drawn run has done wrong.
type findings struct {
	finding  sync.Mutex
	failures []string
}

func (f *findings) found(format string, args ...any) {
	f.finding.Lock()
	defer f.finding.Unlock()
	if len(f.failures) < 20 {
		f.failures = append(f.failures, fmt.Sprintf(format, args...))
	}
}

func (f *findings) failed() []string { return f.failures }

// drawnRun is a run of a plan, which counts what it meets.
type drawnRun[C any] interface {
	run()
	check()
	counted() C
	failed() []string
	story() string
}

// drawsAsked tells whether -rapid.checks says how many runs there are.
func drawsAsked() (asked bool) {
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	return asked
}

// fewPlans says that there are a few runs, of the same plans each time, unless it is asked for more.
func fewPlans(t *testing.T, seed string, few int) (more func(runs int) bool) {
	if drawsAsked() {
		return func(int) bool { return true }
	}
	require.NoError(t, flag.Set("rapid.seed", seed))
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.seed", "0")) })
	return func(runs int) bool { return runs < few }
}

// drawn makes runs of drawn plans, in time that doesn't pass by itself, as long as more says so, and logs what they have met. Nothing is kept of
// those that fail: a run doesn't repeat itself, and testdata has the stories.
func drawn[P, C any](t *testing.T, more func(runs int) bool, draw func(*rapid.T) P, begin func(*testing.T, P) drawnRun[C]) {
	require.NoError(t, flag.Set("rapid.nofailfile", "true"))
	var sum C
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if !more(runs) {
			return
		}
		runs++
		plan := draw(rt)
		var r drawnRun[C]
		synctest.Test(t, func(t *testing.T) {
			r = begin(t, plan)
			r.run()
		})
		r.check()
		addCounts(&sum, r.counted())
		if len(r.failed()) > 0 {
			rt.Fatalf("%s\n%s", strings.Join(r.failed(), "\n"), r.story())
		}
	})
	t.Logf("%d runs: %+v", runs, sum)
}

// addCounts adds what a run has counted, in fields of type int.
func addCounts[C any](sum *C, of C) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(of)
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}
