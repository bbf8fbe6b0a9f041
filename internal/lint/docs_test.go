package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryPackageIsDocumented wants one package comment per package.
func TestEveryPackageIsDocumented(t *testing.T) {
	said := map[string][]string{}
	for _, s := range sources(t) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", s.path), nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		if _, ok := said[s.dir]; !ok {
			said[s.dir] = nil
		}
		if f.Doc != nil && !ast.IsGenerated(f) && strings.TrimSpace(f.Doc.Text()) != "" {
			said[s.dir] = append(said[s.dir], s.path)
		}
	}
	for dir, files := range said {
		switch {
		case len(files) == 0:
			t.Errorf("package %s has no comment that says what it is for", dir)
		case len(files) > 1:
			t.Errorf("package %s says more than once what it is for: %v", dir, files)
		}
	}
}
