// Package prometheus holds rules for Prometheus. Its test needs nothing beside the files; their
// evaluation is tested in test/dashboards.
package prometheus

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// Each alert has a section in docs/operations.md to which it links, and a test; there are no
// sections and tests of others.
func TestAlertsHaveRunbooksAndTests(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations struct {
					Runbook string `json:"runbook_url"`
				}
			}
		}
	}
	decode(t, "stoa.rules.yml", &rules)
	var stories struct{ Tests []struct{ Name string } }
	decode(t, "stoa.test.yml", &stories)

	var alerts, tested []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				alerts = append(alerts, r.Alert)
				require.Equal(t, "https://github.com/stoa-kv/stoa/blob/main/docs/operations.md#"+strings.ToLower(r.Alert), r.Annotations.Runbook)
			}
		}
	}
	for _, s := range stories.Tests {
		tested = append(tested, s.Name)
	}
	require.Equal(t, alerts, tested)
	require.Equal(t, alerts, sections(t))
}

// sections are those of docs/operations.md for alerts.
func sections(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(text), "\n## Alerts\n")
	after, _, _ = strings.Cut(after, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(after, -1) {
		names = append(names, m[1])
	}
	return names
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}
