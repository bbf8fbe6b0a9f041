package mutate

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Mutation is a seeded bug.
type Mutation struct {
	Name string
	Seed uint64 // known to show it; a change of the code may move it
	// Members: it shows only in runs in which the members change.
	Members bool
	// Force: it shows only in runs at whose end one server is made a cluster of its own.
	Force bool
	// Users: it shows only in runs in which clients are users.
	Users bool
	// Balance: it shows only in runs in which slots move at random.
	Balance bool
	// Resize: it shows only in runs in which the number of partitions changes.
	Resize bool
	// Checks: it shows only in runs in which states of servers are compared, and changed.
	Checks bool
	// Swarm: it shows only in runs that have some of all.
	Swarm bool
	// Test is the scripted test that shows it, in the place of seeds. "": seeds do.
	Test  string
	edits []edit
}

// edit is a change of one file.
type edit struct {
	file    string // below the root of the repository
	find    string
	replace bool
	text    string
}

// Load reads the mutations of all text files in a directory.
func Load(dir string) ([]Mutation, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []Mutation
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, list...)
	}
	return all, nil
}

func parse(text string) (list []Mutation, err error) {
	lines := strings.SplitAfter(text, "\n")
	file := ""
	for n := 0; n < len(lines); n++ {
		word, rest, _ := strings.Cut(strings.TrimSpace(lines[n]), " ")
		switch {
		case word == "" || word == "#":
		case word == "mutation":
			m := Mutation{}
			words := strings.Fields(rest)
			if _, err := fmt.Sscanf(rest, "%s test=%s", &m.Name, &m.Test); err == nil {
				list = append(list, m)
				continue
			}
			if _, err := fmt.Sscanf(rest, "%s seed=%d", &m.Name, &m.Seed); err != nil {
				return nil, fmt.Errorf("line %d: a name and a seed or a test are wanted: %w", n+1, err)
			}
			m.Members, m.Force = slices.Contains(words, "members"), slices.Contains(words, "force")
			m.Balance = slices.Contains(words, "balance")
			m.Resize, m.Checks = slices.Contains(words, "resize"), slices.Contains(words, "checks")
			m.Users, m.Swarm = slices.Contains(words, "users"), slices.Contains(words, "swarm")
			list = append(list, m)
		case word == "file":
			file = rest
		case word == "find" && file != "" && len(list) > 0:
			var e edit
			if e, n, err = parseEdit(lines, n+1); err != nil {
				return nil, err
			}
			e.file = file
			m := &list[len(list)-1]
			m.edits = append(m.edits, e)
		default:
			return nil, fmt.Errorf("line %d: %q is not understood here", n+1, word)
		}
	}
	return list, nil
}

// parseEdit reads on behind a "find" and returns the line of the "end".
func parseEdit(lines []string, from int) (e edit, end int, err error) {
	text := &e.find
	for n := from; n < len(lines); n++ {
		switch lines[n] {
		case "insert\n", "replace\n":
			e.replace = lines[n] == "replace\n"
			text = &e.text
		case "end\n":
			if e.find == "" || text == &e.find {
				return e, n, fmt.Errorf("line %d: an edit without text", n+1)
			}
			return e, n, nil
		default:
			*text += lines[n]
		}
	}
	return e, 0, fmt.Errorf("line %d: an edit without end", from)
}

// Sources returns the edited files, by their names below root.
func Sources(root string, list []Mutation) (map[string]string, error) {
	files := map[string]string{}
	for _, m := range list {
		for _, e := range m.edits {
			text, ok := files[e.file]
			if !ok {
				b, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", m.Name, err)
				}
				text = importMutant(string(b))
			}
			if n := strings.Count(text, e.find); n != 1 {
				return nil, fmt.Errorf("%s: %s holds these lines %d times, not once:\n%s", m.Name, e.file, n, e.find)
			}
			with := e.text
			if !e.replace {
				with += e.find
			}
			files[e.file] = strings.Replace(text, e.find, with, 1)
		}
	}
	return files, nil
}

// Env is the environment variable that switches a mutation on in the binaries of tests that have no flag for that.
const Env = "STOA_MUTANT"

// The package that knows which mutation is on. Only an overlay has it.
const (
	mutantFile   = "internal/mutant/mutant.go"
	mutantSource = `// Package mutant knows which seeded bug is on.
package mutant

import "os"

var on = os.Getenv("` + Env + `")

// Switch puts one on, before anything else runs.
func Switch(name string) { on = name }

// Is tells whether it is this one.
func Is(name string) bool { return on == name }
`
	mutantImport = `import "github.com/stoa-kv/stoa/internal/mutant"`
)

func importMutant(source string) string {
	lines := strings.Split(source, "\n")
	clause := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "package ") })
	return strings.Join(slices.Insert(lines, clause+1, mutantImport), "\n")
}

// Write writes files, by their names below root, to dir beside the package that knows which mutation is on, and returns
// the name of what go test -overlay reads.
func Write(root, dir string, files map[string]string) (string, error) {
	files = maps.Clone(files)
	files[mutantFile] = mutantSource
	var entries []string
	for name, text := range files {
		at := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return "", err
		}
		entries = append(entries, strconv.Quote(filepath.Join(root, name))+": "+strconv.Quote(at))
	}
	slices.Sort(entries)
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, []byte(`{"Replace": {`+strings.Join(entries, ",\n")+"}}\n"), 0o600)
}
