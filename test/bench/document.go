package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stoa-kv/stoa/test/plot"
)

// section is one part of the report. A run replaces those that it measured and leaves
// the others as they are in the file.
type section struct {
	title  string
	text   string     // Markdown above the table
	rows   [][]string // the heading first
	notes  []string
	charts map[string]plot.Chart // by file name
}

const preamble = `# Benchmarks

Written by ` + "`make bench` and `make bench-sessions` (`go run ./test/bench -write docs/benchmarks.md`)" + `: real peers and
stoa side by side, in one run, on one machine, under one load. Rounds are interleaved, figures are medians over the
rounds, CPU is that of all servers of a cluster together, from ` + "`/proc/PID/stat`" + `, per operation. The load generator runs on
the same machine; what it used itself stands beside. Absolute figures drift from day to day and from machine to
machine: the ratios count.
`

func (s section) markdown(images string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.title, s.text)
	for _, name := range sortedNames(s.charts) {
		fmt.Fprintf(&b, "![%s](%s)\n\n", s.charts[name].Title, filepath.ToSlash(filepath.Join(images, name)))
	}
	for i, row := range s.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
	for _, n := range s.notes {
		fmt.Fprintf(&b, "\n%s\n", n)
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
}

// update writes the sections into the file, in the order of all titles.
func update(file, images string, sections []section) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing the report: %w", err)
	}
	text := merge(string(old), imagesFrom(file, images), sections)
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
	text := preamble
	for _, title := range titles {
		if parts[title] != "" {
			text += "\n" + parts[title]
		}
	}
	return text
}

// imagesFrom is the way from the report to the plots.
func imagesFrom(file, images string) string {
	rel, err := filepath.Rel(filepath.Dir(file), images)
	if err != nil {
		return images
	}
	return rel
}

// draw writes the charts.
func draw(dir string, sections []section) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("drawing the plots: %w", err)
	}
	for _, s := range sections {
		for name, chart := range s.charts {
			out, err := os.Create(filepath.Join(dir, name))
			if err != nil {
				return fmt.Errorf("drawing the plots: %w", err)
			}
			if err := errors.Join(chart.Write(out), out.Close()); err != nil {
				return fmt.Errorf("drawing the plots: %w", err)
			}
		}
	}
	return nil
}
