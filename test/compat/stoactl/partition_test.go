package stoactl

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// Directories move from partition to partition, and are pinned, by the commands of operators.
func TestPartitions(t *testing.T) {
	t.Parallel()
	stoactl := build(t)
	s := process.StartT(t, process.Spec{Partitions: 3}).Servers[0]
	run := func(args string) (string, error) {
		out, err := exec.Command(stoactl, append(strings.Fields(args), "--endpoints="+s.ClientURL)...).CombinedOutput()
		return string(out), err
	}
	done := func(args, want string) {
		t.Helper()
		out, err := run(args)
		require.NoError(t, err, out)
		require.Equal(t, want, out)
	}
	type list struct {
		Partitions []struct {
			ID, Keys int
		}
		Moving bool
		Pins   []struct {
			Prefix    []byte
			Partition int
		}
	}
	keys := func() (l list) {
		t.Helper()
		require.Eventually(t, func() bool {
			out, err := run("partition list -w json")
			require.NoError(t, err, out)
			l = list{}
			require.NoError(t, json.Unmarshal([]byte(out), &l), out)
			return !l.Moving
		}, time.Minute, 50*time.Millisecond)
		return l
	}
	for _, key := range []string{"/a/b/1", "/a/b/2", "/a/c/1", "/a/c/d/1"} {
		done("put "+key+" v", "OK\n")
	}
	for to, n := range []string{"0", "1", "2"} {
		done("partition pin /a/ --to "+n, `"/a/" pinned to partition `+n+"\n")
		l := keys()
		require.Equal(t, 4, l.Partitions[to].Keys)
		require.Len(t, l.Pins, 1)
		require.Equal(t, "/a/", string(l.Pins[0].Prefix))
		require.Equal(t, to, l.Pins[0].Partition)
	}
	out, err := run("partition move /a/b/ --to 0")
	require.Error(t, err)
	require.Contains(t, out, `"/a/b/" is held in partition 2 by the pin "/a/"`)
	done("partition unpin /a/", `"/a/" unpinned`+"\n")
	keys()
	for to, n := range []string{"0", "1", "2"} {
		done("partition move /a/b/ --to "+n, `"/a/b/" moves to partition `+n+"\n")
		require.GreaterOrEqual(t, keys().Partitions[to].Keys, 2)
	}
	for args, want := range map[string]string{
		"partition unpin /a/":        `there is no pin "/a/"`,
		"partition move /a/ --to 1":  `the keys below "/a/" lie in many slots`,
		"partition pin /a/ --to 3":   "there is no partition 3: there are 0 to 2",
		"partition pin /a/ --to 999": "there is no partition 999",
	} {
		out, err := run(args)
		require.Error(t, err, args)
		require.Contains(t, out, want)
	}
	done("get /a/ --prefix --keys-only", "/a/b/1\n\n/a/b/2\n\n/a/c/1\n\n/a/c/d/1\n\n")
}
