package extensions

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/extension"
)

func TestEveryRecipeCompilesUnderAnyRoot(t *testing.T) {
	require.Equal(t, []string{"balancer", "barrier", "counter", "election", "locked", "queue", "ratelimit", "rename", "semaphore", "tuplespace"}, Names())
	for _, name := range Names() {
		source := Source(name)
		require.Truef(t, strings.HasPrefix(source, "-- "+name+": "), "%s begins with what it is", name)
		require.Equal(t, 1, strings.Count(source, "\nlocal root = "), name)
		_, err := extension.Compile(name, []byte(source), 1, extension.Defaults)
		require.NoError(t, err)

		root := "/elsewhere" + Root(name)
		moved, err := SourceAt(name, root)
		require.NoError(t, err)
		e, err := extension.Compile(name, []byte(moved), 1, extension.Defaults)
		require.NoError(t, err)
		for _, p := range e.Scope {
			require.Truef(t, strings.HasPrefix(strings.TrimPrefix(string(p), "/stoa/txn/lock/"), root), "%s of %s", p, name)
		}
		for _, o := range e.Operations {
			require.Truef(t, strings.HasPrefix(string(o.Pattern), root), "%s of %s", o.Pattern, name)
		}
	}
}

func TestInvalidRoots(t *testing.T) {
	for name, root := range map[string]string{"queue": "/jobs", "counter": "/ctr/", "barrier": "b/", "election": "/", "rename": `/a"b`, "none": "/x/"} {
		_, err := SourceAt(name, root)
		require.Error(t, err, "%s at %s", name, root)
	}
	require.Empty(t, Source("none"))
	require.Empty(t, Root("none"))
}
