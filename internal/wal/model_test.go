package wal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/vfs"
)

var errPower = errors.New("power failure")

const headKind = 99

// model is the expected content of the log: of all, the records up to synced
// must come back, except those that Release was told are not needed.
type model struct {
	fs     *vfs.Mem
	w      *WAL
	all    []Record
	synced int
	// pending is the frame that a failed Append may have left on the disk.
	pending []Record
	reached Place // that Durable has returned
	keep    []uint64
	next    [3]uint64
	number  int
}

func (m *model) open(t *rapid.T) {
	var got []string
	heads := 0
	w, err := Open(Options{
		FS: m.fs, Dir: testDir, SegmentBytes: 2048, Metadata: []byte("me"), Reaches: m.reached,
		Head: func() []Record { return []Record{{Group: 1, Kind: headKind, Data: []byte("head")}} },
	}, func(r Record) error {
		if r.Kind == headKind {
			heads++
		} else {
			got = append(got, show(r))
		}
		return nil
	})
	require.NoError(t, err)
	m.w = w
	require.LessOrEqual(t, w.Segments()-1, heads, "every segment but the first begins with the head")
	m.check(t, got)
}

// check compares the replayed records with the appended ones: they have no
// gap and include all that were synced and are needed.
func (m *model) check(t *rapid.T, got []string) {
	all := shows(append(slices.Clone(m.all), m.pending...))
	begin := 0
	if len(got) > 0 {
		begin = slices.Index(all, got[0])
		require.GreaterOrEqual(t, begin, 0, "never appended: %s", got[0])
	} else {
		begin = m.synced
	}
	end := begin + len(got)
	require.LessOrEqual(t, end, len(all))
	require.True(t, slices.Equal(all[begin:end], got), "%v is not a piece of what was appended, %v", got, all)
	require.GreaterOrEqual(t, end, m.synced, "all that was synced")
	for _, r := range m.all[:begin] {
		require.Less(t, r.Index, m.keep[r.Group], "released though needed")
	}
	// Replayed records are durable, and records behind them are lost for
	// good. Released records may come back: a crash can undo the removal of a
	// file.
	m.all = append(m.all, m.pending...)[:end]
	m.synced, m.pending = len(m.all), nil
}

func (m *model) append(t *rapid.T) error {
	var recs []Record
	for range rapid.IntRange(0, 4).Draw(t, "records") {
		g := rapid.IntRange(0, 2).Draw(t, "group")
		m.next[g]++
		m.number++
		r := Record{Group: uint32(g), Kind: 1, Index: m.next[g], Data: fmt.Appendf(nil, "%d ", m.number)}
		r.Data = append(r.Data, strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 300, 900, 3000}).Draw(t, "size"))...)
		recs = append(recs, r)
	}
	err := m.w.Append(recs)
	if err != nil {
		m.pending = recs
		return err
	}
	m.all = append(m.all, recs...)
	return nil
}

func (m *model) sync() error {
	err := m.w.Sync()
	if err == nil {
		m.synced = len(m.all)
	}
	m.reached = m.w.Durable()
	return err
}

func (m *model) release(t *rapid.T) error {
	for g := range m.keep {
		// Only durable records may be released.
		for _, r := range m.all[:m.synced] {
			if int(r.Group) == g && rapid.Bool().Draw(t, "keep") {
				m.keep[g] = max(m.keep[g], r.Index)
			}
		}
	}
	return m.w.Release(needs(m.keep...))
}

func (m *model) step(t *rapid.T) error {
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0, 1, 2, 3, 4:
		return m.append(t)
	case 5, 6, 7:
		return m.sync()
	default:
		return m.release(t)
	}
}

// life runs the log until the power fails in one of its calls into the file
// system, or until it is closed, killed or loses power between two calls.
func (m *model) life(t *rapid.T) {
	left := rapid.IntRange(0, 60).Draw(t, "calls before the power fails")
	m.fs.Inject(func(vfs.Op, string) error {
		if left--; left < 0 {
			return errPower
		}
		return nil
	})
	for range rapid.IntRange(0, 30).Draw(t, "steps") {
		if err := m.step(t); err != nil {
			require.ErrorIs(t, err, errPower)
			break
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "close") == 0 && m.w.Close() == nil {
		m.synced = len(m.all)
	}
	m.fs.Inject(nil)
	if rapid.IntRange(0, 3).Draw(t, "killed") == 0 {
		m.fs = m.fs.Restart()
	} else {
		m.fs = m.fs.Crash(seeded(rapid.Uint64().Draw(t, "crash")))
	}
}

// After any crash everything synced is recovered, and nothing garbled,
// reordered or never appended.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{fs: vfs.NewMem(), keep: make([]uint64, 3)}
		for range rapid.IntRange(2, 6).Draw(t, "lives") {
			m.open(t)
			m.life(t)
		}
		m.open(t)
	})
}

// Open itself may be cut short, as often as it likes.
func TestOpenCanCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{fs: vfs.NewMem(), keep: make([]uint64, 3)}
		m.open(t)
		m.life(t)
		for range rapid.IntRange(1, 5).Draw(t, "attempts") {
			left := rapid.IntRange(0, 20).Draw(t, "calls")
			m.fs.Inject(func(vfs.Op, string) error {
				if left--; left < 0 {
					return errPower
				}
				return nil
			})
			_, err := Open(Options{FS: m.fs, Dir: testDir, SegmentBytes: 2048, Metadata: []byte("me")}, func(Record) error { return nil })
			if err != nil {
				require.ErrorIs(t, err, errPower)
			}
			m.fs.Inject(nil)
			m.fs = m.fs.Crash(seeded(rapid.Uint64().Draw(t, "crash")))
		}
		m.open(t)
	})
}
