package apply

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
)

// registering is the entry of a registration, as a server of a language proposes it.
func registering(r *rig, name, source string, language int) (*command.Entry, Plan) {
	req := sourcePut(name, source)
	p := r.Plan(command.Put, req, func() (string, int64) { return "", 0 })
	p.Call.Language = language
	c := p.Command(command.Put, cmd(req).Body)
	return &command.Entry{Commands: []command.Command{c}}, p
}

// Apply finds what was compiled ahead of it, and a change of the limits compiles nothing.
func TestApplyCompilesNothing(t *testing.T) {
	r := newRig(1)
	e, p := registering(r, "a", handler(`return 1`), extension.Language)
	r.Expect(e)
	ahead := r.Codes.last[0].code
	require.NotNil(t, ahead)
	r.entry(e, p.Parts, nil)
	a := r.Extensions().Get("a")
	require.Same(t, &ahead.Operations[0], &a.Operations[0])

	r.Codes.last = nil
	r.must(t, &pb.PutRequest{Key: []byte(extension.LimitsKey), Value: []byte(`{"steps": 500}`)})
	require.Equal(t, int64(500), r.Extensions().Limits.Steps)
	require.Same(t, a, r.Extensions().Get("a"))
	require.Empty(t, r.Codes.last)
}

// A machine in the place of another, with the same state, finds what that one has compiled.
func TestTheNextMachineCompilesNothing(t *testing.T) {
	r := newRig(2)
	r.must(t, sourcePut("a", handler(`return 1`)))
	next := New(r.Config)
	require.NoError(t, next.LoadExtensions())
	require.Same(t, &r.Extensions().Get("a").Operations[0], &next.Extensions().Get("a").Operations[0])
	require.EqualValues(t, 1, next.LateCompilations())
}

// Sources are compiled once, however many ask for them at once, and those that were used
// last are kept.
func TestCodesAreBounded(t *testing.T) {
	var c Codes
	var all sync.WaitGroup
	for i := range 4 * maxCodes {
		all.Go(func() {
			source := []byte(handler(fmt.Sprint("return ", i%(2*maxCodes))))
			get := c.ahead
			if i%2 == 0 {
				get = c.get
			}
			code, err := get(extension.Language, source)
			require.NoError(t, err)
			require.Equal(t, len(source), code.Source)
		})
	}
	all.Wait()
	require.LessOrEqual(t, len(c.last), maxCodes)

	large := handler(`local t = {} ` + strings.Repeat("t[1] = t[2] ", 2200))
	for i := range 30 {
		_, err := c.get(1, []byte(large+"--"+strconv.Itoa(i)))
		require.NoError(t, err)
	}
	sum := int64(0)
	for _, d := range c.last {
		sum += d.size
	}
	require.LessOrEqual(t, sum, int64(maxCodesMemory))
	require.Less(t, len(c.last), 30)
	_, err := c.get(extension.Language, []byte("no source"))
	require.Error(t, err)
	_, again := c.get(extension.Language, []byte("no source"))
	require.Same(t, err, again)
}

// A server that doesn't know the version of the language which an extension is
// registered for doesn't apply it, and doesn't start with it.
func TestAServerThatLacksTheLanguageEnds(t *testing.T) {
	r := newRig(1)
	var reason error
	r.Fatal = func(err error) { reason = err }
	e, p := registering(r, "a", handler(`return 1`), extension.Language+1)
	done := make(chan struct{})
	go func() { // the execution of the log ends
		defer close(done)
		r.entry(e, p.Parts, nil)
	}()
	<-done
	require.ErrorContains(t, reason, `the extension "a" is registered for version 3 of the language of extensions, and this release of stoa knows 2 to 2`)
	require.Nil(t, r.Extensions().Get("a"))

	r = newRig(1)
	r.must(t, sourcePut("a", handler(`return 1`)))
	x := execution{m: r.Machine, parts: 1, local: 0, running: running{rev: 9}}
	x.set(extension.LanguageKey("a"), []byte("3"))
	require.ErrorContains(t, r.LoadExtensions(), "version 3 of the language")
	x.rev = 10
	x.delete(extension.LanguageKey("a")) // as registrations for version 1 had none
	require.ErrorContains(t, r.LoadExtensions(), "version 1 of the language")
	x.rev = 11
	x.set(extension.LanguageKey("a"), []byte("2"))
	require.NoError(t, r.LoadExtensions())
	x.rev = 12
	x.set(extension.SourceKey("a"), []byte("nothing"))
	require.ErrorContains(t, r.LoadExtensions(), `an extension that was registered can't be compiled: stoa: extension "a": line 1`)
}

// must plans and applies a request.
func (r *rig) must(t *testing.T, req *pb.PutRequest) {
	p := r.Plan(command.Put, req, func() (string, int64) { return "", 0 })
	r.entry(&command.Entry{Commands: []command.Command{p.Command(command.Put, cmd(req).Body)}}, p.Parts, func(_ int, res Result) {
		require.NoError(t, res.Err)
	})
}

// A source that is compiled ahead is compiled with pauses, and without once apply waits for it.
func TestApplyWaitsForNoPauses(t *testing.T) {
	source := []byte(handler(strings.Repeat("local x = 1 ", 150) + "return 1" + strings.Repeat(" ", 20<<10)))
	begun, pauses := make(chan struct{}), 0
	c := Codes{pace: func(hurry <-chan struct{}) func() {
		return func() {
			if pauses++; pauses == 1 {
				close(begun)
			}
			<-hurry
		}
	}}
	ahead := make(chan *extension.Code)
	go func() {
		code, err := c.ahead(extension.Language, source)
		require.NoError(t, err)
		ahead <- code
	}()
	<-begun
	code, err := c.get(extension.Language, source)
	require.NoError(t, err)
	require.Same(t, code, <-ahead)
	require.GreaterOrEqual(t, pauses, 3*len(source)>>10, "the scanner, the parser and the verifier have paused")
	require.EqualValues(t, 1, c.late.Load())
	again, err := c.ahead(extension.Language, source)
	require.NoError(t, err)
	require.Same(t, code, again)
}
