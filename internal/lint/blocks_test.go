package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// runBy names, for each section with shell commands, what runs them: a file, and what in it does. Commands that
// need another machine, or another program than those that are built here, are in blocks of the console.
var runBy = map[string][2]string{
	"README.md/Install":                  {"test/newcomer/run.sh", "block Install 1"},
	"README.md/Start one server":         {"test/newcomer/run.sh", "block 'Start one server' 2"},
	"README.md/Start a cluster of three": {"test/newcomer/run.sh", "block 'Start a cluster of three' 1"},
	"README.md/Start a sidecar":          {"test/newcomer/run.sh", "block 'Start a sidecar' 2"},
	"README.md/Test":                     {"Makefile", ".PHONY: test"}, // the list of targets

	"docs/deploy.md/systemd":                     {"test/operator/deploy_test.go", `b.blocks("systemd")`},
	"docs/extensions.md/A queue in five minutes": {"test/compat/extensions_docs_test.go", "extensions.md"},

	"docs/operations.md/Backup":                                {"test/operator/runbook_test.go", `b.blocks("Backup")`},
	"docs/operations.md/Restore":                               {"test/operator/runbook_test.go", `b.blocks("Restore")`},
	"docs/operations.md/Moving to etcd":                        {"test/operator/runbook_test.go", `b.blocks("Moving to etcd")`},
	"docs/operations.md/Moving from etcd":                      {"test/operator/runbook_test.go", `b.blocks("Moving from etcd")`},
	"docs/operations.md/Moving a running cluster":              {"test/operator/runbook_test.go", `b.blocks("Moving a running cluster")`},
	"docs/operations.md/Converting a data directory of etcd's": {"test/operator/runbook_test.go", `b.blocks("Converting a data directory of etcd's")`},
	"docs/operations.md/Lost majority":                         {"test/operator/runbook_members_test.go", `b.blocks("Lost majority")`},
	"docs/operations.md/Moving to other machines":              {"test/operator/runbook_members_test.go", `b.blocks("Moving to other machines")`},
	"docs/operations.md/Replacing a member":                    {"test/operator/runbook_members_test.go", `b.blocks("Replacing a member")`},
	"docs/operations.md/Another address of a member":           {"test/operator/runbook_members_test.go", `b.blocks("Another address of a member")`},
	"docs/operations.md/Upgrade":                               {"test/operator/upgrade_test.go", `b.blocks("Upgrade")`},
	"docs/operations.md/Downgrade":                             {"test/operator/upgrade_test.go", `b.blocks("Downgrade")`},
	"docs/operations.md/Partitions":                            {"test/operator/blocks_test.go", `b.blocks("Partitions")`},
	"docs/operations.md/JSON over HTTP":                        {"test/operator/blocks_test.go", `b.blocks("JSON over HTTP")`},

	"docs/security.md/Set up TLS":   {"test/operator/secure_test.go", `b.blocks("Set up TLS")`},
	"docs/security.md/Set up users": {"test/operator/secure_test.go", `b.blocks("Set up users")`},
	"docs/security.md/Tokens":       {"test/operator/secure_test.go", `b.blocks("Tokens")`},
	"docs/security.md/Quotas":       {"test/operator/blocks_test.go", `b.blocks("Quotas")`},

	"docs/sidecar.md/":                {"test/compat/sidecar/docs_test.go", "sidecar.md"},
	"docs/sidecar.md/Namespaces":      {"test/compat/sidecar/docs_test.go", "sidecar.md"},
	"docs/sidecar.md/Cached prefixes": {"test/compat/sidecar/docs_test.go", "sidecar.md"},
	"docs/sidecar.md/Users":           {"test/compat/sidecar/docs_test.go", "sidecar.md"},
	"docs/sidecar.md/Pages":           {"test/compat/sidecar/docs_test.go", "sidecar.md"},

	"docs/ui.md/": {"internal/config/ui_test.go", "ui.md"},

	"examples/regions/README.md/Run it": {"examples/regions/regions_test.go", "README.md"},
}

// TestCommandsAreRun: each section of a page that has shell commands is in runBy, and what is there is so.
func TestCommandsAreRun(t *testing.T) {
	root := filepath.Join("..", "..")
	found := map[string]bool{}
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "examples/*/*.md", "extensions/*.md", "deploy/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, page := range pages {
			name, err := filepath.Rel(root, page)
			require.NoError(t, err)
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			section := ""
			for line := range strings.Lines(string(text)) {
				if heading, ok := strings.CutPrefix(line, "## "); ok {
					section = strings.TrimSpace(heading)
				}
				require.False(t, strings.HasPrefix(line, "export ETCDCTL_"), "%s: etcdctl ends if a later block of the same terminal has the flag: %s", name, line)
				if strings.TrimSpace(line) == "```sh" {
					found[filepath.ToSlash(name)+"/"+section] = true
				}
			}
		}
	}
	for section := range found {
		by, ok := runBy[section]
		if !ok {
			t.Errorf("%s has shell commands that nothing runs", section)
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, by[0]))
		require.NoError(t, err)
		require.Contains(t, string(text), by[1], "%s: %s", section, by[0])
	}
	for section := range runBy {
		if !found[section] {
			t.Errorf("%s has no shell commands", section)
		}
	}
}
