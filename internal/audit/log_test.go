package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// file is in memory. While it is held, writes wait; it takes at most room bytes.
type file struct {
	mu     sync.Mutex
	b      bytes.Buffer
	room   int // < 0: any
	held   chan struct{}
	closed bool
}

func (f *file) Write(b []byte) (int, error) {
	if f.held != nil {
		<-f.held
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room >= 0 && len(b) > f.room {
		n, _ := f.b.Write(b[:f.room])
		f.room = 0
		return n, errors.New("disk full")
	}
	f.room -= max(0, min(f.room, len(b)))
	return f.b.Write(b)
}

func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *file) grow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room = -1
}

func (f *file) records(t *testing.T) (list []Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range strings.Split(strings.TrimSpace(f.b.String()), "\n") {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err == nil {
			list = append(list, r)
		} else {
			require.NotContains(t, line, `"code"`, "only a torn line is none")
		}
	}
	return list
}

func numbered(i int) *Record {
	return &Record{Time: time.Unix(int64(i), 0), Method: fmt.Sprint("m", i), Code: "OK"}
}

func TestLinesAreInOrder(t *testing.T) {
	f := &file{room: -1}
	l := Open(f, Options{})
	for i := range 10_000 { // more than one piece
		l.Add(numbered(i))
	}
	require.True(t, l.Close(time.Minute))
	require.True(t, f.closed)
	list := f.records(t)
	require.Len(t, list, 10_000)
	for i, r := range list {
		require.Equal(t, fmt.Sprint("m", i), r.Method)
	}
	require.EqualValues(t, 10_000, l.Written())
	require.Zero(t, l.Dropped())
	l.Add(numbered(1))
	require.EqualValues(t, 1, l.Dropped(), "it is closed")
	require.True(t, l.Close(time.Minute))
}

// A file that takes nothing holds up nothing: lines are dropped beyond the bound, counted,
// and the file says how many are missing.
func TestASlowFile(t *testing.T) {
	f := &file{room: -1, held: make(chan struct{})}
	failed := make(chan uint64, 100)
	l := Open(f, Options{MaxPending: 1000, Failed: func(n uint64, err error) {
		require.NoError(t, err)
		failed <- n
	}})
	const all = 1000
	for i := range all {
		l.Add(numbered(i))
	}
	require.False(t, l.Close(time.Millisecond), "it waits for the file")
	close(f.held)
	require.True(t, l.Close(time.Minute))
	require.Positive(t, l.Dropped())
	require.NotEmpty(t, failed)
	var noted uint64
	written := 0
	for _, r := range f.records(t) {
		if noted += r.Dropped; r.Dropped == 0 {
			written++
		}
	}
	require.Equal(t, l.Dropped(), noted)
	require.EqualValues(t, all, uint64(written)+l.Dropped())
}

func TestAFullDisk(t *testing.T) {
	f := &file{room: len(numbered(0).line()) * 3 / 2}
	failed := make(chan error, 10)
	l := Open(f, Options{Failed: func(_ uint64, err error) { failed <- err }})
	l.Add(numbered(0))
	require.Eventually(t, func() bool { return l.Written() == 1 }, time.Minute, time.Millisecond)
	l.Add(numbered(1))
	l.Add(numbered(2))
	require.ErrorContains(t, <-failed, "disk full")
	require.Eventually(t, func() bool { return l.Dropped() == 2 }, time.Minute, time.Millisecond)
	f.grow()
	l.Add(numbered(3))
	require.True(t, l.Close(time.Minute))

	var methods []string
	var noted uint64
	for _, r := range f.records(t) {
		methods = append(methods, r.Method)
		noted += r.Dropped
	}
	require.ElementsMatch(t, []string{"m0", "m3", "audit"}, methods, "the torn line is on a line of its own")
	require.EqualValues(t, 2, noted)
	require.EqualValues(t, 2, l.Dropped())
}

// No write is longer than the smallest file that is rotated, also of lines of the longest
// keys.
func TestLongLines(t *testing.T) {
	f := &widest{}
	l := Open(f, Options{})
	r := &Record{Method: "m", Code: "OK"}
	key := bytes.Repeat([]byte{0xff}, 1<<20)
	for range 2 * maxKeys {
		r.add("put", key, key)
	}
	require.Equal(t, maxKeys, r.Left)
	l.Add(r)
	for i := range 20_000 {
		l.Add(numbered(i))
	}
	require.True(t, l.Close(time.Minute))
	require.Less(t, f.longest, 1<<20)
	require.EqualValues(t, 20_001, l.Written()+l.Dropped())
}

type widest struct{ longest int }

func (f *widest) Write(b []byte) (int, error) {
	f.longest = max(f.longest, len(b))
	return len(b), nil
}
func (f *widest) Close() error { return nil }

func TestEscape(t *testing.T) {
	for _, tc := range []struct{ key, want string }{
		{"/a/b c~", "/a/b c~"},
		{`a\b`, `a\\b`},
		{"a\x00\n\xff", `a\x00\x0a\xff`},
		{"é", `\xc3\xa9`},
		{"", ""},
		{strings.Repeat("k", 300), strings.Repeat("k", 256) + `\...(300 bytes)`},
	} {
		require.Equal(t, tc.want, Escape([]byte(tc.key)))
	}
}

// A password in a member's URL is none of the log's business.
func TestURLs(t *testing.T) {
	var r Record
	r.urls([]string{"http://u:secret@h:1?token=secret#secret", "http://%zzsecret"})
	require.Equal(t, []string{"http://h:1"}, r.URLs)
}

// With the race detector: several goroutines add, and one closes.
func TestAddsFromAllSides(t *testing.T) {
	f := &file{room: -1}
	l := Open(f, Options{MaxPending: 10_000})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				l.Add(numbered(i))
			}
		})
	}
	wg.Wait()
	require.True(t, l.Close(time.Minute))
	require.EqualValues(t, 2000, l.Written()+l.Dropped()-notes(f.records(t)))
}

func notes(list []Record) (n uint64) {
	for _, r := range list {
		if r.Dropped > 0 {
			n++
		}
	}
	return n
}
