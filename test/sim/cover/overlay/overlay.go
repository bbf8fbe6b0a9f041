// Package overlay compiles package cover's notes into the code that simulated servers run.
package overlay

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoa-kv/stoa/test/sim/mutate"
)

const module = "github.com/stoa-kv/stoa/"

// without are packages whose blocks tell nothing of what a cluster does, and are executed for each byte.
var without = []string{"internal/fault", "internal/kvwire", "internal/protofield", "internal/radix", "internal/version"}

// Write writes the sources with notes, and with seeded bugs, to dir, and returns the file for go test -overlay. more are files to be put in beside them.
func Write(root, dir string, bugs []mutate.Mutation, more map[string]string) (string, error) {
	files, err := mutate.Sources(root, bugs)
	if err != nil {
		return "", err
	}
	sources, err := sourcesOf(root)
	if err != nil {
		return "", err
	}
	for _, name := range sources {
		text, is := files[name]
		if !is {
			b, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if files[name], err = noted(name, text); err != nil {
			return "", err
		}
	}
	for name, text := range more {
		files[name] = text
	}
	return mutate.Write(root, dir, files)
}

// sourcesOf are those of all packages that the simulation has of the servers.
func sourcesOf(root string) (names []string, err error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}}\n{{end}}", "./test/sim")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the simulation's packages: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		name, ours := strings.CutPrefix(strings.TrimSpace(line), module)
		if ours && strings.HasPrefix(name, "internal/") && !slices.Contains(without, filepath.ToSlash(filepath.Dir(name))) {
			names = append(names, name)
		}
	}
	return names, nil
}

// noted is a source whose blocks are noted. Lines stay where they are.
func noted(name, text string) (string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	inserts := map[int]string{}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	block := func(behind token.Pos) {
		h := fnv.New32a()
		fmt.Fprintf(h, "%s:%d", name, offset(behind))
		inserts[offset(behind)+1] = fmt.Sprintf("simcover.At(%d);", h.Sum32())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			if !hasClauses(n) {
				block(n.Lbrace)
			}
		case *ast.CaseClause:
			block(n.Colon)
		case *ast.CommClause:
			block(n.Colon)
		}
		return true
	})
	inserts[offset(file.Name.End())] = `;import simcover "` + module + `test/sim/cover"`
	inserts[len(text)] = "\nvar _ = simcover.At // also where nothing is noted\n"
	var with bytes.Buffer
	for i := range len(text) + 1 {
		with.WriteString(inserts[i])
		if i < len(text) {
			with.WriteByte(text[i])
		}
	}
	return with.String(), nil
}

// hasClauses is so for the body of a switch or a select.
func hasClauses(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return true // of an empty switch, perhaps; an empty block has nothing to be noted
	}
	switch b.List[0].(type) {
	case *ast.CaseClause, *ast.CommClause:
		return true
	}
	return false
}
