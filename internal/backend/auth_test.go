package backend_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
)

// Users and roles are written as a whole, or as far as they have changed.
func TestAuthChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	be := open(t, path)
	s := stores(2, be)
	write := func(c *backend.AuthChange) {
		cut := &backend.Cut{Partitions: []store.Cut{s[0].Cut(), s[1].Cut()}, System: backend.System{Auth: c}}
		require.NoError(t, be.Flush(cut))
		for i := range s {
			s[i].Release(cut.Partitions[i])
		}
	}
	expect := func(want backend.Auth) {
		m, err := be.Meta()
		require.NoError(t, err)
		require.Equal(t, want, m.Auth)
	}
	type content = map[string][]byte
	write(&backend.AuthChange{Whole: true, Auth: content{"on": {1}, "old": {1}}, Users: content{"a": {1}, "b": {2}}, Roles: content{"r": {1}, "s": {1}}})
	expect(backend.Auth{Auth: content{"on": {1}, "old": {1}}, Users: content{"a": {1}, "b": {2}}, Roles: content{"r": {1}, "s": {1}}})
	write(&backend.AuthChange{Auth: content{"on": {2}}, Users: content{"a": {3}, "b": nil, "c": {1}, "never": nil}})
	expect(backend.Auth{Auth: content{"on": {2}}, Users: content{"a": {3}, "c": {1}}, Roles: content{"r": {1}, "s": {1}}})
	write(&backend.AuthChange{Whole: true, Auth: content{"on": {2}}, Users: content{"a": {3}}})
	expect(backend.Auth{Auth: content{"on": {2}}, Users: content{"a": {3}}})
}
