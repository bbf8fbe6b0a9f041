package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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

// allImports are sentences that name all packages of stoa that one imports.
var allImports = regexp.MustCompile(`imports? (?:only )?(?:nothing|any(?:thing|.* package)?) (?:else )?of stoa|nothing else of stoa|[Oo]f stoa(?:'s packages)?,? (?:it|the package) imports`)

// TestNamedImportsAreAll: where a package's comment says which packages of stoa it imports, it imports these and no others.
// The API and messages of etcd's aren't counted.
func TestNamedImportsAreAll(t *testing.T) {
	packages, said := map[string]map[string]bool{}, map[string]string{}
	for _, s := range sources(t) {
		name := path.Base(s.dir)
		if !strings.HasPrefix(s.dir, "internal/") {
			continue
		}
		if packages[name] == nil {
			packages[name] = map[string]bool{}
		}
		for _, i := range s.imports {
			if of, ok := strings.CutPrefix(i, module+"internal/"); ok && of != "lockpb" {
				packages[name][path.Base(of)] = true
			}
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", s.path), nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		if f.Doc != nil {
			said[name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
	}
	found := 0
	for name, text := range said {
		for sentence := range strings.SplitSeq(text, ". ") {
			if !allImports.MatchString(sentence) {
				continue
			}
			found++
			named := map[string]bool{}
			for _, word := range regexp.MustCompile(`[a-z0-9]+`).FindAllString(sentence, -1) {
				if packages[word] != nil && word != name {
					named[word] = true
				}
			}
			require.Equal(t, slices.Sorted(maps.Keys(packages[name])), slices.Sorted(maps.Keys(named)), "package %s: %s", name, sentence)
		}
	}
	require.Greater(t, found, 15)
}
