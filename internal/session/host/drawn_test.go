package host

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

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

// drawnRun is a run that is over.
type drawnRun interface {
	failed() []string
	story() string
}

// drawsAsked tells whether -rapid.checks says how many runs there are.
func drawsAsked() (asked bool) {
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	return asked
}

// drawn makes runs as long as more says so, and returns how many. Nothing is kept of those that fail: a run doesn't repeat
// itself, and testdata has the stories.
func drawn(t *testing.T, more func(runs int) bool, run func(rt *rapid.T) drawnRun) (runs int) {
	require.NoError(t, flag.Set("rapid.nofailfile", "true"))
	rapid.Check(t, func(rt *rapid.T) {
		if !more(runs) {
			return
		}
		runs++
		if r := run(rt); len(r.failed()) > 0 {
			rt.Fatalf("%s\n%s", strings.Join(r.failed(), "\n"), r.story())
		}
	})
	return runs
}

// addCounts adds what a run has counted, in fields of type int.
func addCounts[C any](sum *C, of C) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(of)
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}
