// Package overlay compiles the points of package interleave into packages of production code, and
// seeded bugs beside them.
package overlay

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/stoa-kv/stoa/test/sim/mutate"
)

const here = "github.com/stoa-kv/stoa/test/interleave/"

var points = strings.NewReplacer(
	"\t\"sync\"\n", "\t\""+here+"sync\"\n",
	"\t\"sync/atomic\"\n", "\t\""+here+"atomic\"\n",
	"import \"sync\"\n", "import \""+here+"sync\"\n",
	"import \"sync/atomic\"\n", "import \""+here+"atomic\"\n",
)

// Write writes edited sources to dir, and returns the file for go test -overlay. Packages are
// directories below root.
func Write(root, dir string, packages []string, bugs []mutate.Mutation) (string, error) {
	edited, err := mutate.Sources(root, bugs)
	if err != nil {
		return "", err
	}
	files := map[string]string{"test/interleave/instrumented.go": "package interleave\n\nconst instrumented = true\n"}
	for name, text := range edited {
		files[name] = points.Replace(text)
	}
	for _, p := range packages {
		sources, err := filepath.Glob(filepath.Join(root, p, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range sources {
			name := filepath.Join(p, filepath.Base(file))
			if _, is := files[name]; is || strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if with := points.Replace(string(text)); with != string(text) {
				files[name] = with
			}
		}
	}
	return mutate.Write(root, dir, files)
}
