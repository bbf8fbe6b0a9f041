package sheet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
)

// Table writes rows as Markdown; the first is the heading.
func Table(w io.Writer, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
}

// Round leaves of a time what can be read at a glance, not below a microsecond.
func Round(d time.Duration) time.Duration {
	switch {
	case d > 100*time.Millisecond:
		return d.Round(time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// Way is how a report refers to a directory of plots.
func Way(report, dir string) string {
	if rel, err := filepath.Rel(filepath.Dir(report), dir); err == nil {
		return rel
	}
	return dir
}

// Image is how a report refers to a plot, when Way leads to its directory.
func Image(way, name string) string { return filepath.ToSlash(filepath.Join(way, name)) }

// Draw writes charts, by their names, into files of a directory.
func Draw(dir string, charts map[string]plot.Chart) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("drawing the plots: %w", err)
	}
	for name, chart := range charts {
		out, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("drawing the plots: %w", err)
		}
		if err := errors.Join(chart.Write(out), out.Close()); err != nil {
			return fmt.Errorf("drawing the plots: %w", err)
		}
	}
	return nil
}

// Keep writes a report to a file.
func Keep(file string, text func(io.Writer)) error {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	text(out)
	return out.Close()
}
