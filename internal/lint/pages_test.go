package lint

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const index = "docs/README.md"

// TestEveryPageIsReachable follows the links from the index to all pages of the repository, and to
// headings.
func TestEveryPageIsReachable(t *testing.T) {
	root := filepath.Join("..", "..")
	reached, anchors := map[string]bool{index: true}, map[string]map[string]bool{}
	for todo := []string{index}; len(todo) > 0; {
		page := todo[0]
		todo = todo[1:]
		for _, l := range linksOf(t, root, page) {
			file, err := os.Stat(filepath.Join(root, l.to))
			if err != nil {
				t.Errorf("%s: there is no %s", page, l.to)
				continue
			}
			if file.IsDir() || !strings.HasSuffix(l.to, ".md") {
				continue
			}
			if anchors[l.to] == nil {
				anchors[l.to] = headings(t, root, l.to)
			}
			if l.heading != "" && !anchors[l.to][l.heading] {
				t.Errorf("%s: %s has no heading #%s", page, l.to, l.heading)
			}
			if !reached[l.to] {
				reached[l.to] = true
				todo = append(todo, l.to)
			}
		}
	}
	for _, page := range filesOf(t, ".md") {
		if !reached[page] {
			t.Errorf("%s can't be reached from %s", page, index)
		}
	}
}

type link struct{ to, heading string }

var (
	fenced   = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	inline   = regexp.MustCompile("`[^`\n]*`")
	target   = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"`)
	headline = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	dropped  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// linksOf leaves out those to other hosts.
func linksOf(t *testing.T, root, page string) (all []link) {
	t.Helper()
	for _, m := range target.FindAllStringSubmatch(inline.ReplaceAllString(textOf(t, root, page), ""), -1) {
		to := m[1] + m[2]
		if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		file, heading, _ := strings.Cut(to, "#")
		if file == "" {
			file = path.Base(page)
		}
		all = append(all, link{path.Join(path.Dir(page), file), heading})
	}
	return all
}

// headings are the anchors that GitHub makes of them: of the second with the same text, name-1.
func headings(t *testing.T, root, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range headline.FindAllStringSubmatch(textOf(t, root, page), -1) {
		plain := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		anchor := strings.ReplaceAll(plain, " ", "-")
		name := anchor
		for n := 1; all[name]; n++ {
			name = fmt.Sprintf("%s-%d", anchor, n)
		}
		all[name] = true
	}
	return all
}

// textOf is a page without its blocks of code.
func textOf(t *testing.T, root, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	return fenced.ReplaceAllString(string(text), "")
}
