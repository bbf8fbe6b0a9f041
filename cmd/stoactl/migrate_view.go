package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/client/migrate"
	"github.com/stoa-kv/stoa/client/mirror"
)

// migrationView shows how a migration goes on: one line that changes if there is a
// terminal, else lines at intervals. Lines go to the error output if the result is for a
// program.
type migrationView struct {
	app      *app
	terminal *bar
	cutOver  bool
	quiet    time.Duration

	open      bool // the terminal's line is not ended
	shown     time.Time
	ready     bool
	mu        sync.Mutex
	retriedAt time.Time
}

// linesEach is the interval of lines without a terminal.
const linesEach = 10 * time.Second

func (v *migrationView) observer() migrate.Observer {
	return migrate.Observer{
		Began: v.began, Copied: v.copied, Following: v.following, Verified: v.verified,
		Unverified: func() {
			v.line("Not compared yet: the source is compacted before all of it can be read. Both will be compared at the cut-over")
		},
		CuttingOver: func() {
			v.line("The source has had no write for %s: cutting over", v.quiet)
		},
		Postponed: func(err error) { v.line("Not cut over: %v. Stop its writers; comparing again", err) },
		Retrying:  v.retrying,
	}
}

func (v *migrationView) began(mark mirror.Mark, resumed bool) {
	switch {
	case !resumed:
		v.line("Copying into an empty target, or what differs")
	case mark.Phase == mirror.At || mark.Phase == mirror.Partial:
		v.line("Going on at revision %d of the source", mark.Revision)
	default:
		v.line("Going on: a copy was interrupted, copying what differs")
	}
}

func (v *migrationView) line(format string, args ...any) {
	v.endLine()
	w := v.app.out
	if v.app.o.form != "simple" {
		w = v.app.errs
	}
	fmt.Fprintf(w, format+"\n", args...)
}

// status replaces the terminal's line, or writes one at intervals.
func (v *migrationView) status(format string, args ...any) {
	if v.terminal.w == nil {
		if time.Since(v.shown) >= linesEach {
			v.shown = time.Now()
			v.line(format, args...)
		}
		return
	}
	if time.Since(v.shown) >= 100*time.Millisecond {
		v.shown = time.Now()
		fmt.Fprintf(v.terminal.w, "\r%-79s", fmt.Sprintf(format, args...))
		v.open = true
	}
}

func (v *migrationView) endLine() {
	if v.open {
		fmt.Fprintln(v.terminal.w)
		v.open = false
	}
}

func (v *migrationView) copied(keys, total, written int64) {
	if keys%256 != 0 && keys != total {
		return
	}
	const width = 30
	percent := int64(100)
	if total > 0 {
		percent = keys * 100 / total
	}
	full := int(percent) * width / 100
	v.status("copying [%s%s] %3d %%  %d of %d keys, %d written", strings.Repeat("=", full), strings.Repeat(" ", width-full), percent, keys, total, written)
}

func (v *migrationView) following(s migrate.Status) {
	wait := ""
	if v.cutOver && s.Verified && !s.Quiet {
		wait = fmt.Sprintf("; waiting until the source has had no write for %s", v.quiet)
	}
	v.status("following: revision %d of the source, %d behind%s", s.Revision, s.Behind, wait)
	if s.Verified && !v.ready && !v.cutOver {
		v.ready = true
		v.line("Ready to cut over: stop the writers of the source, and run the same command with --cut-over")
	}
}

func (v *migrationView) verified(at mirror.Place, sum mirror.Sum) {
	v.line("Equal at revision %d of the source, %d of the target: %s", at.Source, at.Target, sum)
}

// retrying is called by several goroutines.
func (v *migrationView) retrying(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.retriedAt) < linesEach {
		return
	}
	v.retriedAt = time.Now()
	fmt.Fprintf(v.app.errs, "Trying again: %v\n", err)
}
