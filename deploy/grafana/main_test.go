package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The files that Grafana imports are what the definitions render to.
func TestFilesAreUpToDate(t *testing.T) {
	for name, of := range dashboards {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(render(of())), string(file), "%s: run `make dashboards`", name)
	}
}

// Grafana tells dashboards apart by their IDs, and the panels of one by theirs.
func TestIDsAreUnique(t *testing.T) {
	uids := map[string]bool{}
	for name, of := range dashboards {
		d := of()
		require.False(t, uids[d.UID], "%s: the ID %s is another's, too", name, d.UID)
		uids[d.UID] = true
		ids := map[int]bool{}
		for _, p := range d.Panels {
			require.False(t, ids[p.ID], "%s: panel %q has the ID of another", name, p.Title)
			ids[p.ID] = true
		}
	}
}
