package lint

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
	goFile     = regexp.MustCompile(`[\w./-]+\.go\b`)
	identifier = regexp.MustCompile(`^(?:[A-Za-z]\w*\.)?(?:[A-Z]\w*[a-z]\w*|[a-z]+[A-Z]\w*)$`)
	testName   = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)[A-Z]\w*$`)
	inFile     = regexp.MustCompile("`((?:\\w+\\.)?\\w+)`(?:\\s+in\\s+|\\s+\\()`([\\w/]+\\.go)`")
	flagName   = regexp.MustCompile(`"([a-z][a-z0-9-]*)"`)
	longFlag   = regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]*)`)
)

// TestNamedFilesExist: Go files that pages name, by their last directories, are there.
func TestNamedFilesExist(t *testing.T) {
	files := filesOf(t, ".go")
	for _, page := range pages(t) {
		for _, span := range codeSpan.FindAllStringSubmatch(textOf(t, repository, page), -1) {
			for _, name := range goFile.FindAllString(span[1], -1) {
				if !slices.ContainsFunc(files, func(f string) bool { return f == name || strings.HasSuffix(f, "/"+name) }) {
					t.Errorf("%s: there is no %s", page, name)
				}
			}
		}
	}
}

// TestNamedFunctionsExist: so are tests that pages name, and functions and types that those about the code name.
func TestNamedFunctionsExist(t *testing.T) {
	words := map[string]bool{}
	for _, f := range filesOf(t, ".go") {
		for w := range strings.FieldsFuncSeq(read(t, f), func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			words[w] = true
		}
	}
	for _, page := range pages(t) {
		names := testName
		switch path.Base(page) {
		case "architecture.md", "consistency.md", "glossary.md", "DESIGN.md":
			names = identifier
		case "etcd-tests.md":
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(textOf(t, repository, page), -1) {
			if !names.MatchString(span[1]) {
				continue
			}
			for _, w := range strings.Split(span[1], ".") {
				if !words[w] {
					t.Errorf("%s: there is no %s in the code", page, span[1])
				}
			}
		}
	}
}

// TestNamedFunctionsAreInTheirFiles: what a page says to be in a file, as `name` in `file.go` or `name` (`file.go`), is declared there.
func TestNamedFunctionsAreInTheirFiles(t *testing.T) {
	files := filesOf(t, ".go")
	for _, page := range pages(t) {
		for _, m := range inFile.FindAllStringSubmatch(textOf(t, repository, page), -1) {
			if strings.HasSuffix(m[1], ".go") {
				continue
			}
			name := m[1][strings.LastIndex(m[1], ".")+1:]
			declared := regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type |var |const |\t)` + name + `\b`)
			if !slices.ContainsFunc(files, func(f string) bool {
				return (f == m[2] || strings.HasSuffix(f, "/"+m[2])) && declared.MatchString(read(t, f))
			}) {
				t.Errorf("%s: there is no %s in %s", page, m[1], m[2])
			}
		}
	}
}

// TestPackagesAreInTheArchitecture: each package of the product has a row in the table of docs/architecture.md.
func TestPackagesAreInTheArchitecture(t *testing.T) {
	text, looked := read(t, "docs/architecture.md"), map[string]bool{}
	for _, s := range sources(t) {
		top, _, _ := strings.Cut(s.dir, "/")
		if looked[s.dir] || !slices.Contains([]string{"client", "cmd", "internal"}, top) {
			continue
		}
		looked[s.dir] = true
		if !strings.Contains(text, "`"+s.dir+"`") && !strings.Contains(text, "`"+path.Base(s.dir)+"`") && !strings.Contains(text, "/"+path.Base(s.dir)+"`") {
			t.Errorf("docs/architecture.md doesn't say what %s is for", s.dir)
		}
	}
}

// othersFlags are those that every program has, and those of other programs.
var othersFlags = []string{
	"help", "chown", "etcd-upgrade", "for", "no-create-home", "now", "platform", "replicas", "shell", "system", "timeout",
}

// TestNamedFlagsExist: some program of this repository, or of etcd's, declares each flag that pages and deploy name.
func TestNamedFlagsExist(t *testing.T) {
	declared := map[string]bool{}
	for _, name := range othersFlags {
		declared[name] = true
	}
	for _, s := range sources(t) {
		for _, m := range flagName.FindAllStringSubmatch(read(t, s.path), -1) {
			declared[m[1]] = true
		}
	}
	for _, page := range append(pages(t), filesOf(t, ".yaml", ".service", "Dockerfile")...) {
		for _, m := range longFlag.FindAllStringSubmatch(read(t, page), -1) {
			if !declared[m[1]] && !strings.HasSuffix(m[1], "-") { // those that begin so
				t.Errorf("%s: no program has --%s", page, m[1])
			}
		}
	}
}

// TestDependenciesAreDescribed: docs/dependencies.md has the modules that go.mod requires, in the table in which they belong.
func TestDependenciesAreDescribed(t *testing.T) {
	shipped, forTests, ok := strings.Cut(read(t, "docs/dependencies.md"), "\nFor tests alone:\n")
	require.True(t, ok)
	direct, _, _ := strings.Cut(read(t, "go.mod"), "\n)\n")
	_, direct, ok = strings.Cut(direct, "require (\n")
	require.True(t, ok)
	all := sources(t)
	for line := range strings.Lines(direct) {
		m := strings.Fields(line)[0]
		used := slices.ContainsFunc(all, func(s source) bool {
			return !below(s.dir, "test") && slices.ContainsFunc(s.imports, func(i string) bool { return i == m || strings.HasPrefix(i, m+"/") })
		})
		in := forTests
		if used {
			in = shipped
		}
		if !strings.Contains(in, "`"+m+"`") {
			t.Errorf("docs/dependencies.md doesn't say what %s is for (for tests alone: %t)", m, !used)
		}
	}
}

var repository = filepath.Join("..", "..")

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, file))
	require.NoError(t, err)
	return string(text)
}

// filesOf are the repository's files with these ends, without what is built or only tests' input.
func filesOf(t *testing.T, ends ...string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(repository, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(repository, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && strings.HasPrefix(d.Name(), ".") || rel == "bin" || rel == "dist" || d.Name() == "testdata" || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(rel, end) }) {
			all = append(all, rel)
		}
		return nil
	}))
	return all
}

// pages are those that say what is so today: not the changelog.
func pages(t *testing.T) []string {
	return slices.DeleteFunc(filesOf(t, ".md"), func(f string) bool { return f == "CHANGELOG.md" })
}
