package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/worker"
)

// mirrorView shows how mirrors go on, each from a goroutine of its own: lines for what happens,
// and one that changes, if there is a terminal, for how far they are.
type mirrorView struct {
	app      *app
	terminal *bar

	mu    sync.Mutex
	open  bool // the terminal's line is not ended
	shown time.Time
}

func (v *mirrorView) observer(m compose.Mirror) worker.Observer {
	called := fmt.Sprintf("%q in %s", m.Prefix, m.Target)
	var failed time.Time
	var failing sync.Mutex
	trouble := func(err error) {
		failing.Lock()
		defer failing.Unlock()
		if time.Since(failed) >= linesEach {
			failed = time.Now()
			v.line("%s: trying again: %v", called, err)
		}
	}
	return worker.Observer{
		Elected: func(mark mirror.Mark, resumed bool) {
			switch {
			case !resumed:
				v.line("%s: copying from %s", called, m.Home)
			case mark.Phase == mirror.Copying:
				v.line("%s: a copy was interrupted, copying from %s what differs", called, m.Home)
			default:
				v.line("%s: going on at revision %d of %s", called, mark.Revision, m.Home)
			}
		},
		Copied: func(keys, total, written int64) { v.status(copying(called, keys, total, written)) },
		Following: func(s worker.Status) {
			v.status(fmt.Sprintf("%s: revision %d of %s, %d behind, %.1f s", called, s.Revision, m.Home, s.Behind, s.Lag.Seconds()))
		},
		Failed: trouble, Retrying: trouble,
	}
}

// copying is the progress bar of a copy.
func copying(called string, keys, total, written int64) string {
	const width = 20
	full := width
	if total > 0 {
		full = int(min(keys*width/total, width))
	}
	return fmt.Sprintf("%s: [%s%s] %d of %d keys, %d written", called, strings.Repeat("=", full), strings.Repeat(" ", width-full), keys, total, written)
}

func (v *mirrorView) line(format string, args ...any) {
	v.endLine()
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.app.errs, format+"\n", args...)
}

// status replaces the terminal's line, or, without a terminal, writes one at intervals.
func (v *mirrorView) status(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	each := linesEach
	if v.terminal.w != nil {
		each = 100 * time.Millisecond
	}
	switch {
	case time.Since(v.shown) < each:
		return
	case v.terminal.w == nil:
		fmt.Fprintln(v.app.errs, text)
	default:
		fmt.Fprintf(v.terminal.w, "\r%-79s", text)
		v.open = true
	}
	v.shown = time.Now()
}

func (v *mirrorView) endLine() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open {
		fmt.Fprintln(v.terminal.w)
		v.open = false
	}
}
