package calllog

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

func line(format string, args ...any) Call {
	return Call{Lines: []string{fmt.Sprintf(format, args...)}}
}

func texts(c *Call) string {
	text := strings.Join(c.Lines, "/")
	if c.Err != nil {
		text += c.Err.Error()
	}
	return text
}

// shown are the lines of a batch, and how many calls it lacks.
func shown(b Batch) string {
	var all []string
	if b.Missed > 0 {
		all = append(all, fmt.Sprintf("(%d)", b.Missed))
	}
	for _, c := range b.Calls {
		all = append(all, texts(c))
	}
	return strings.Join(all, " ")
}

func TestACursorReadsEachCallOnce(t *testing.T) {
	l := New(Default)
	l.Add("a", Call{Lines: []string{"1", "2"}})
	l.Add("b", line("other"))
	c := l.Open("a")
	defer c.Close()
	require.Equal(t, "1/2", shown(c.Read()))
	b := c.Read()
	require.Empty(t, shown(b))
	select {
	case <-b.Changed:
		t.Fatal("nothing has changed")
	default:
	}
	l.Add("a", Call{Err: errors.New("failed")})
	<-b.Changed
	l.Add("a", line("4"))
	require.Equal(t, "failed 4", shown(c.Read()))
	again := l.Open("a")
	defer again.Close()
	require.Equal(t, "1/2 failed 4", shown(again.Read()))
}

func TestOldCallsAreDropped(t *testing.T) {
	l := New(Bounds{Lines: 4, Bytes: 1 << 20, Total: 1 << 20})
	c := l.Open("a")
	defer c.Close()
	l.Add("a", line("0"))
	require.Equal(t, "0", shown(c.Read()))
	for i := range 6 {
		l.Add("a", Call{Lines: []string{fmt.Sprint(i)}, Err: errors.New("!")})
	}
	l.Add("b", line("other"))
	require.Equal(t, "(4) 4! 5!", shown(c.Read()))
	l.Add("a", Call{Lines: make([]string, 100)}) // the latest call is kept, however long
	require.Len(t, c.Read().Calls, 1)
}

// The oldest calls of all extensions make room for the newest.
func TestTheTotalIsBounded(t *testing.T) {
	one := line("xxxxxxxxxx")
	l := New(Bounds{Lines: 100, Bytes: 1 << 20, Total: 10 * (one.size() + ringBytes)})
	for i := range 100 {
		l.Add(fmt.Sprintf("e%d", i%20), one)
	}
	require.Len(t, l.rings, 10, "rings without calls are removed")
	require.Equal(t, 10*(one.size()+ringBytes), l.bytes)
	for i := range 20 {
		c := l.Open(fmt.Sprintf("e%d", i))
		require.Len(t, c.Read().Calls, i/10, i)
		c.Close()
	}
	require.Len(t, l.rings, 10)
}

func TestTheCallsOfARemovedExtensionAreGone(t *testing.T) {
	l := New(Default)
	c := l.Open("a")
	defer c.Close()
	l.Add("a", line("1"))
	l.Add("b", line("2"))
	waiting := c.Read()
	l.Add("a", line("3"))
	l.Forget("a")
	<-waiting.Changed
	require.True(t, c.Read().Gone)
	l.Add("a", line("of another extension of this name"))
	require.True(t, c.Read().Gone)
	fresh := l.Open("a")
	defer fresh.Close()
	require.Equal(t, "of another extension of this name", shown(fresh.Read()))
	l.Retain(func(name string) bool { return name == "a" })
	require.Len(t, l.rings, 1)
	require.Equal(t, "of another extension of this name", shown(l.Open("a").Read()))
}

func TestTheCallsOfAnotherScopeAreGone(t *testing.T) {
	l := New(Default)
	c := l.Open("a")
	defer c.Close()
	in := func(text string, seen ...extension.Pattern) Call { return Call{Lines: []string{text}, Seen: seen} }
	l.Add("a", in("1", "/x/"))
	l.Add("a", in("2", "/x/"))
	l.Add("b", in("other", "/x/"))
	require.Equal(t, "1 2", shown(c.Read()))
	l.Add("a", in("3", "/x/"))
	l.Add("a", in("4", "/x/", "/y/"))
	l.Add("a", in("5", "/x/", "/y/"))
	b := c.Read()
	require.Equal(t, "(1) 4 5", shown(b))
	require.Equal(t, []extension.Pattern{"/x/", "/y/"}, b.Calls[1].Seen)
	require.Equal(t, "other", shown(l.Open("b").Read()))
}

// Against a model of plain lists: what is kept, what is read, what is accounted for.
func TestAgainstModel(t *testing.T) {
	type kept struct {
		name string
		call Call
		seq  int
	}
	rapid.Check(t, func(t *rapid.T) {
		bounds := Bounds{Lines: 5, Bytes: 6 * recordBytes, Total: 4*ringBytes + 10*recordBytes}
		l := New(bounds)
		var all []kept
		of := func(name string) (list []kept, lines, bytes int) {
			for _, k := range all {
				if k.name == name {
					list, lines, bytes = append(list, k), lines+k.call.lines(), bytes+k.call.size()
				}
			}
			return list, lines, bytes
		}
		remove := func(i int) { all = append(all[:i:i], all[i+1:]...) }
		seqs := map[string]int{}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		cursors := map[string]*Cursor{} // keeps the ring, and with it the numbers
		read := map[string]int{}
		for _, name := range []string{"a", "b", "c", "d"} {
			cursors[name] = l.Open(name)
		}
		add := func(t *rapid.T) {
			name := names.Draw(t, "name")
			c := Call{Lines: rapid.SliceOfN(rapid.StringN(0, 100, 300), 0, 4).Draw(t, "lines")}
			if rapid.Bool().Draw(t, "failed") {
				c.Err = errors.New("failed")
			}
			l.Add(name, c)
			seqs[name]++
			all = append(all, kept{name, c, seqs[name]})
			for {
				list, lines, bytes := of(name)
				if len(list) == 1 || lines <= bounds.Lines && bytes <= bounds.Bytes {
					break
				}
				for i, k := range all {
					if k.name == name {
						remove(i)
						break
					}
				}
			}
			total := func() (n int) {
				for _, k := range all {
					n += k.call.size()
				}
				return n
			}
			for len(all) > 1 && 4*ringBytes+total() > bounds.Total {
				remove(0)
			}
		}
		look := func(t *rapid.T) {
			name := names.Draw(t, "name")
			b := cursors[name].Read()
			list, _, _ := of(name)
			var want []string
			for _, k := range list {
				if k.seq > read[name] {
					want = append(want, texts(&k.call))
				}
			}
			if missed := seqs[name] - read[name] - len(want); missed > 0 {
				want = append([]string{fmt.Sprintf("(%d)", missed)}, want...)
			}
			require.Equal(t, strings.Join(want, " "), shown(b))
			read[name] = seqs[name]
		}
		forget := func(t *rapid.T) {
			name := names.Draw(t, "name")
			l.Forget(name)
			require.True(t, cursors[name].Read().Gone)
			cursors[name].Close()
			cursors[name] = l.Open(name)
			seqs[name], read[name] = 0, 0
			for i := len(all) - 1; i >= 0; i-- {
				if all[i].name == name {
					remove(i)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){"add": add, "read": look, "forget": forget, "": func(t *rapid.T) {
			bytes := 4 * ringBytes
			for _, k := range all {
				bytes += k.call.size()
			}
			require.Equal(t, bytes, l.bytes)
			require.Equal(t, len(all) == 0, l.oldest == nil && l.newest == nil)
		}})
	})
}

func TestReadersAndWritersAtOnce(t *testing.T) {
	const calls = 3000
	l := New(Bounds{Lines: 50, Bytes: 1 << 20, Total: 2*ringBytes + 40*recordBytes})
	var writers, readers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range calls {
				l.Add(fmt.Sprintf("e%d", w%2), line("%d", i))
				if i%500 == 499 && w == 0 {
					l.Forget("e0")
				}
			}
		})
	}
	for r := range 4 {
		readers.Go(func() {
			name := fmt.Sprintf("e%d", r%2)
			c := l.Open(name)
			for {
				b := c.Read()
				if b.Gone {
					c.Close()
					c = l.Open(name)
					continue
				}
				if n := len(b.Calls); n > 0 && b.Calls[n-1].Err != nil {
					c.Close()
					return
				}
				<-b.Changed
			}
		})
	}
	writers.Wait()
	l.Add("e0", Call{Err: errors.New("end")})
	l.Add("e1", Call{Err: errors.New("end")})
	readers.Wait()
	require.LessOrEqual(t, l.bytes, l.bounds.Total)
}

// Whatever calls there are, a full log takes no more memory than its bound.
func TestMemoryIsBounded(t *testing.T) {
	text := func(n int) string { return strings.Clone(strings.Repeat("x", n)) }
	lines := func(n, size int) (list []string) {
		for range n {
			list = append(list, text(size))
		}
		return list
	}
	for name, c := range map[string]func() Call{
		"nothing":     func() Call { return Call{} },
		"short lines": func() Call { return Call{Key: text(1), Lines: lines(65, 1)} },
		"empty lines": func() Call { return Call{Lines: lines(65, 0)} },
		"one line":    func() Call { return Call{Key: text(33), Lines: lines(1, 33)} },
		"long lines":  func() Call { return Call{Key: text(257), Lines: lines(100, 1000)} },
		"failures":    func() Call { return Call{Key: text(9), Err: fault.ExtensionFailed.With(text(100))} },
	} {
		for _, extensions := range []int{40, 1 << 20} {
			t.Run(fmt.Sprintf("%s of %d", name, extensions), func(t *testing.T) {
				before := heap()
				l := New(Default)
				for i, added := 0, 0; added < 2*Default.Total; i++ {
					call := c()
					added += call.size()
					l.Add(strconv.Itoa(i%extensions), call)
				}
				taken := int(heap() - before)
				t.Logf("%d bytes, %d counted", taken, l.bytes)
				require.LessOrEqual(t, l.bytes, Default.Total)
				require.Less(t, taken, Default.Total)
				runtime.KeepAlive(l)
			})
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkAdd(b *testing.B) {
	l := New(Default)
	lines := []string{strings.Repeat("x", 80)}
	b.ReportAllocs()
	for b.Loop() {
		l.Add("counter", Call{Lines: lines, Handler: "read", Key: "/ctr"})
	}
}
