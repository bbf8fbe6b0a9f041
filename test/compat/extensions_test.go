package compat

import "testing"

// needExtensions skips on etcd, which has none.
func needExtensions(t *testing.T) {
	t.Helper()
	if !underTest(t).Stoa {
		t.Skip("etcd runs no extensions")
	}
}
