package top

import (
	"fmt"
	"strconv"
	"strings"
)

// Line is one of a screen.
type Line struct {
	Text string
	Head bool // the names of a table's columns
}

// hottest is how many slots and prefixes are shown.
const hottest = 10

// Screen lays a report out. A width or height of 0 is no limit; too many rows for a height are
// left out, the least loaded of the longest table first.
func (r *Report) Screen(width, height int) []Line {
	sections := []*section{r.serverRows(), r.partitionRows(), r.slotRows(), r.prefixRows(), r.extensionRows()}
	lines := r.summary()
	if height > 0 {
		shorten(sections, height-len(lines))
	}
	for _, s := range sections {
		lines = append(lines, s.lines()...)
	}
	if height > 0 {
		lines = lines[:min(height, len(lines))]
	}
	if width > 0 {
		for i := range lines {
			lines[i].Text = cut(lines[i].Text, width)
		}
	}
	return lines
}

// summary are the lines above the tables.
func (r *Report) summary() []Line {
	state := ""
	if r.Moving {
		state = ", keys are moving"
	}
	lines := []Line{
		{Text: fmt.Sprintf("cluster %x at %s: %s, %s%s", r.Cluster, r.Time.Format("15:04:05"), count(len(r.Servers), "server"), count(len(r.Partitions), "partition"), state)},
		{Text: fmt.Sprintf("revision %d, %s, %s, %s, %s", r.Revision, count(int(r.Keys), "key"), count(int(r.Leases), "lease"), count(int(r.Sessions), "session"), plural(r.Watches, "watch", "watches"))},
	}
	for _, a := range r.Alarms {
		lines = append(lines, Line{Text: printable(fmt.Sprintf("alarm: %s of member %s", a.Type, a.Member))})
	}
	for _, t := range r.Trouble {
		lines = append(lines, Line{Text: printable(t)})
	}
	return lines
}

func (r *Report) serverRows() *section {
	s := &section{columns: []string{"-server", "-state", "-release", "load", "puts/s", "deletes/s", "ranges/s", "txns/s", "events/s", "watches", "slow", "file", "log"}}
	for _, x := range r.Servers {
		if x.State == unknown {
			s.add(nameOr(x.Name, x.ID), x.State, printable(x.Trouble))
			continue
		}
		s.add(nameOr(x.Name, x.ID), x.State, printable(x.Release), percent(x.Load), rateText(x.Puts), rateText(x.Deletes), rateText(x.Ranges), rateText(x.Txns),
			rateText(x.Events), fmt.Sprint(x.Watches), fmt.Sprint(x.SlowWatches), bytesText(x.FileBytes), bytesText(x.LogBytes))
	}
	return s
}

func (r *Report) partitionRows() *section {
	s := &section{columns: []string{"partition", "load", "keys", "size", "slots", "-"}}
	for _, x := range r.Partitions {
		slots := "-"
		if x.Slots > 0 {
			slots = fmt.Sprint(x.Slots)
		}
		s.add(fmt.Sprint(x.Partition), percent(x.Load), fmt.Sprint(x.Keys), bytesText(x.Bytes), slots, bar(x.Load))
	}
	return s
}

func (r *Report) slotRows() *section {
	s := &section{columns: []string{"slot", "partition", "load", "-hottest prefix"}}
	for _, x := range r.Slots[:min(hottest, len(r.Slots))] {
		prefix := "-"
		if x.Prefix != "" {
			prefix = quoted(x.Prefix)
		}
		s.add(fmt.Sprint(x.Slot), fmt.Sprint(x.Partition), percent(x.Load), prefix)
	}
	return s
}

func (r *Report) prefixRows() *section {
	s := &section{columns: []string{"-prefix", "partition", "load"}}
	for _, x := range r.Prefixes[:min(hottest, len(r.Prefixes))] {
		s.add(quoted(x.Prefix), fmt.Sprint(x.Partition), percent(x.Load))
	}
	return s
}

func (r *Report) extensionRows() *section {
	s := &section{columns: []string{"-extension", "-state", "calls/s", "steps/s", "steps/call", "writes/s", "errors/s"}}
	for _, x := range r.Extensions {
		state, each := "enabled", "-"
		if x.Disabled {
			state = "disabled"
		}
		if known(x.Calls) > 0 {
			each = fmt.Sprintf("%.0f", known(x.Steps) / *x.Calls)
		}
		s.add(printable(x.Name), state, rateText(x.Calls), rateText(x.Steps), each, rateText(x.Writes), rateText(x.Errors))
	}
	return s
}

// bar shows a load.
func bar(load float64) string {
	const full = 20
	return strings.Repeat("#", int(min(max(load, 0), 1)*full+0.5))
}

func percent(load float64) string { return fmt.Sprintf("%.1f%%", 100*load) }

func rateText(rate *float64) string {
	switch {
	case rate == nil:
		return "-"
	case *rate > 0 && *rate < 10:
		return fmt.Sprintf("%.1f", *rate)
	}
	return fmt.Sprintf("%.0f", *rate)
}

func bytesText(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	v, u := float64(n), 0
	for v >= 999.5 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	if v < 9.95 && u > 0 {
		return fmt.Sprintf("%.1f %s", v, units[u])
	}
	return fmt.Sprintf("%.0f %s", v, units[u])
}

func count(n int, what string) string { return plural(int64(n), what, what+"s") }

func plural(n int64, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func nameOr(name string, id uint64) string {
	if name == "" {
		return fmt.Sprintf("%x", id)
	}
	return printable(name)
}

// quoted is a prefix as a literal, whatever its bytes are.
func quoted(s string) string { return strconv.QuoteToASCII(s) }

// printable is a text with escapes in the place of what isn't printable ASCII.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= ' ' && r <= '~' {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// cut shortens a line, which is ASCII.
func cut(s string, width int) string {
	if len(s) <= width {
		return s
	}
	return s[:width]
}
