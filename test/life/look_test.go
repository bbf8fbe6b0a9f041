package life

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// sizes is what a member takes.
type sizes struct{ goroutines, files, resident, disk float64 }

// look reads what members have logged since the last check, and what they take.
func (l *life) look() {
	l.t.Helper()
	web := l.web()
	for _, s := range l.c.Servers {
		lines := l.logged(s)
		_, page := get(web, s.ClientURL+"/metrics")
		is := sizes{metric(page, "go_goroutines"), metric(page, "process_open_fds"), metric(page, "process_resident_memory_bytes"), disk(s.DataDir)}
		first, ok := l.first[s.Name]
		if !ok {
			l.first[s.Name] = is
			first = is
		}
		l.say("  %s: %.0f goroutines, %.0f files, %.0f MB, disk %.1f MB %s", s.Name, is.goroutines, is.files, is.resident/1e6, is.disk/1e6, counted(lines))
		if is.goroutines > 2*first.goroutines+100 || is.files > 2*first.files+50 {
			l.load.fault("%s takes %+v, at first %+v", s.Name, is, first)
		}
	}
	if lines := l.logged(l.sidecar); len(lines) > 0 {
		l.say("  sidecar: %s", counted(lines))
	}
}

func metric(page, name string) float64 {
	for line := range strings.Lines(page) {
		var v float64
		if n, _ := fmt.Sscanf(line, name+" %g", &v); n == 1 {
			return v
		}
	}
	return 0
}

func disk(dir string) (sum float64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil {
				sum += float64(info.Size())
			}
		}
		return nil
	})
	return sum
}

// logged are the warnings and errors of a server since the last look. What must not be there is a fault.
func (l *life) logged(s *process.Server) map[string]int {
	lines := map[string]int{}
	f, err := os.Open(s.LogFile)
	if err != nil {
		return lines
	}
	defer f.Close()
	_, err = f.Seek(int64(l.marks[s.LogFile]), io.SeekStart)
	require.NoError(l.t, err)
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return lines
		}
		l.marks[s.LogFile] += len(line)
		l.line(s, line, lines)
	}
}

func (l *life) line(s *process.Server, text string, lines map[string]int) {
	var is struct{ Level, Msg, Error string }
	if strings.HasPrefix(text, "---") || strings.TrimSpace(text) == "" {
		return
	}
	err := json.Unmarshal([]byte(text), &is)
	switch {
	case err != nil:
		l.load.fault("%s says: %s", s.Name, text)
	case is.Level == "warn" || is.Level == "error" || is.Level == "panic" || is.Level == "fatal" || is.Level == "dpanic":
		key := is.Level + " " + is.Msg
		if is.Error != "" {
			key += ": " + is.Error[:min(len(is.Error), 160)]
		}
		lines[key]++
		if is.Level != "warn" && s != l.sidecar {
			l.load.fault("%s says: %s", s.Name, text)
		}
	}
}

func counted(of map[string]int) string {
	var out []string
	for text, n := range of {
		out = append(out, fmt.Sprintf("\n      %dx %s", n, text))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}
