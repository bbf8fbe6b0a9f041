package backend_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

func setLevel(t *testing.T, be *backend.Backend, s []*store.Store, l version.Level) {
	t.Helper()
	c := &backend.Cut{Partitions: []store.Cut{s[0].Cut(), s[1].Cut()}, System: backend.System{Level: l}}
	require.NoError(t, be.Flush(c))
	for i := range s {
		s[i].Release(c.Partitions[i])
	}
}

func TestAFileHasTheLevelOfItsCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	be := open(t, path)
	s := stores(2, be)
	for _, tc := range []struct{ set, want version.Level }{{0, version.Oldest}, {version.Newest, version.Newest}, {0, version.Newest}, {version.Oldest, version.Oldest}} {
		setLevel(t, be, s, tc.set)
		m, err := be.Meta()
		require.NoError(t, err)
		require.Equal(t, tc.want, m.Level)
	}
}

func TestAFileOfALaterReleaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	be := open(t, path)
	setLevel(t, be, stores(2, be), version.Newest+1)
	require.NoError(t, be.Close())
	_, err := backend.Open(path, backend.Options{Identity: identity})
	require.EqualError(t, err, "open "+path+": it was written at the cluster version level 8, and this is stoa "+version.Stoa+
		", which reads up to 0.7.0: start the release that wrote it, or a later one")
}
