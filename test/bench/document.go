package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"

	"github.com/stoa-kv/stoa/test/plot"
	"github.com/stoa-kv/stoa/test/sheet"
)

// section is one part of the report. A run replaces those that it measured and
// keeps the others of the file.
type section struct {
	title  string
	text   string     // Markdown above the table
	rows   [][]string // the heading first
	notes  []string
	charts map[string]plot.Chart // by file name

	verdicts []verdict // a table of their own
}

const preamble = `# Benchmarks

Written by ` + "`make bench` (`bin/bench -write docs/benchmarks.md -img docs/img`; `-what` measures a part)" + `: real etcd 3.7.3,
ZooKeeper 3.9.4 and stoa side by side, in one run, on one machine, under one load. Rounds are interleaved, figures are
medians over the rounds, ratios those of each round over the round beside it, with their spread in brackets. CPU is that
of all servers of a cluster together, from ` + "`/proc/PID/stat`" + `, per operation. The load generator runs on the same machine;
its own CPU time is given separately. Absolute figures drift from day to day and from machine to machine; compare the ratios.

All reports together take an hour and a quarter on 2 cores. ` + "`-rounds`, `-length`, `-clients`, `-sessions`, `-depths`" + ` make more of it.
`

// kubePreamble is that of the report of Kubernetes' load.
const kubePreamble = `# Kubernetes' load

Written by ` + "`make bench-kube` (`bin/bench -what kube -write docs/benchmarks-kube.md -img docs/img`)" + `: real etcd 3.7.3 and stoa side by
side, in one run, on one machine, under one load. Figures are medians over the rounds, ratios those of each round over the round
beside it, with their spread in brackets. CPU is that of all servers of a cluster together, from ` + "`/proc/PID/stat`" + `. The load generator runs on the
same machine. Absolute figures drift from day to day and from machine to machine; compare the ratios.
`

// goalsTitle heads the list of all verdicts, which is put together from the sections,
// those of this run and those that stay. verdictHead is the table that it looks for.
const (
	goalsTitle  = "Goals"
	verdictHead = "| goal | asked | measured | verdict |"
)

func (s section) markdown(images string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.title, s.text)
	for _, name := range sortedNames(s.charts) {
		fmt.Fprintf(&b, "![%s](%s)\n\n", s.charts[name].Title, sheet.Image(images, name))
	}
	sheet.Table(&b, s.rows)
	for _, n := range s.notes {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	if len(s.verdicts) > 0 {
		fmt.Fprintf(&b, "\n%s\n| --- | --- | --- | --- |\n", verdictHead)
	}
	for _, v := range s.verdicts {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.goal, v.asked, v.measured, v.word())
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// print shows a section in a terminal.
func (s section) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", s.title)
	width := map[int]int{}
	for _, row := range s.rows {
		for i, f := range row {
			width[i] = max(width[i], len([]rune(f)))
		}
	}
	for _, row := range s.rows {
		for i, f := range row {
			fmt.Fprintf(w, "%s%s  ", f, strings.Repeat(" ", width[i]-len([]rune(f))))
		}
		fmt.Fprintln(w)
	}
	for _, n := range s.notes {
		fmt.Fprintln(w, n)
	}
	for _, v := range s.verdicts {
		fmt.Fprintf(w, "%-7s %s: %s, asked %s\n", v.word(), v.goal, v.measured, v.asked)
	}
}

// update writes the sections into the file, in the order of all titles.
func update(file, images string, sections []section) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing the report: %w", err)
	}
	text := merge(string(old), sheet.Way(file, images), sections)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// merge replaces sections of a report.
func merge(old, images string, sections []section) string {
	parts := map[string]string{}
	for _, part := range strings.Split("\n"+old, "\n## ")[1:] {
		title, _, _ := strings.Cut(part, "\n")
		parts[title] = "## " + strings.TrimRight(part, "\n") + "\n"
	}
	for _, s := range sections {
		parts[s.title] = s.markdown(images)
	}
	text := ""
	for _, m := range measurements {
		if parts[m.title] != "" {
			text += "\n" + parts[m.title]
		}
	}
	if len(sections) == 1 && sections[0].title == kubeTitle {
		return kubePreamble + text
	}
	return preamble + goalsOf(text) + text
}

// goalsOf lists the verdicts of all sections, those that fell short first.
func goalsOf(text string) string {
	var missed, met []string
	within := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, verdictHead):
			within = true
		case !strings.HasPrefix(line, "|"):
			within = false
		case within && strings.HasSuffix(line, "| missed |\n"):
			missed = append(missed, line)
		case within && strings.HasSuffix(line, "| met |\n"):
			met = append(met, line)
		}
	}
	if len(missed)+len(met) == 0 {
		return ""
	}
	return fmt.Sprintf("\n## %s\n\n%d met, %d missed, with details in the sections below. Those of the recipes (counter, queue, barrier, election) are in "+
		"[benchmarks-recipes.md](benchmarks-recipes.md), those of composed clusters in [benchmarks-compose.md](benchmarks-compose.md).\n\n%s\n| --- | --- | --- | --- |\n%s",
		goalsTitle, len(met), len(missed), verdictHead, strings.Join(append(missed, met...), ""))
}

// charts are those of all sections.
func charts(sections []section) map[string]plot.Chart {
	all := map[string]plot.Chart{}
	for _, s := range sections {
		maps.Copy(all, s.charts)
	}
	return all
}
