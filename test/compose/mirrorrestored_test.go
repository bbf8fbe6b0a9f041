package compose

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// The target goes back to a backup, and on to the revisions that it had had, with other keys. The
// worker finds out and goes on from the mark that is there, also if home has compacted what came
// behind it. Readers next to the target never go back, and never see half of a revision.
func TestMirrorRestored(t *testing.T) {
	for _, kinds := range [][]string{{"stoa", "etcd"}, {"etcd", "stoa"}} {
		for _, compacted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s in %s, compacted=%t", kinds[0], kinds[1], compacted), func(t *testing.T) {
				if kinds[1] == "etcd" && !*allCases {
					t.Skip("asked for by -all: a restored lease lives for ten seconds more")
				}
				all := startEach(t, kinds...)
				m := newMirrorTest(t, all, 0)
				target, backup := all[1].Servers[0], t.TempDir()
				defer m.executor()()
				n := m.count(0, 20)
				m.caughtUp()
				m.restart(target, func() { require.NoError(t, os.CopyFS(backup, os.DirFS(target.DataDir))) })
				n = m.count(n, 20)
				m.caughtUp()

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error, 1)
				var mirrored int64
				go func() { failed <- m.readForward(ctx, &mirrored) }()
				sleep(ctx, 100*time.Millisecond)
				m.restart(target, func() {
					require.NoError(t, os.RemoveAll(target.DataDir))
					require.NoError(t, os.CopyFS(target.DataDir, os.DirFS(backup)))
				})
				for i := range 100 {
					_, err := m.target.Put(ctx, "/others", fmt.Sprint(i))
					require.NoError(t, err)
				}
				if compacted {
					at, err := m.home.Put(ctx, m.prefix+"c", "")
					require.NoError(t, err)
					_, err = m.home.Compact(ctx, at.Header.Revision)
					require.NoError(t, err)
				}
				m.count(n, 20)
				m.caughtUp()
				sleep(ctx, 100*time.Millisecond)
				cancel()
				require.NoError(t, <-failed)
				require.Positive(t, mirrored)
				_, ok := m.compare()
				require.True(t, ok)
			})
		}
	}
}

// restart does something while the server isn't there.
func (m *mirrorTest) restart(s *process.Server, meanwhile func()) {
	_, _, err := s.Stop()
	require.NoError(m, err)
	meanwhile()
	require.NoError(m, s.Start())
	require.NoError(m, s.WaitReady(soon(m.T)))
}

// count puts the next numbers into two keys of home, in one transaction each.
func (m *mirrorTest) count(from, times int) (next int) {
	for n := range times {
		value := strconv.Itoa(from + n)
		_, err := m.home.Txn(m.Context()).Then(clientv3.OpPut(m.prefix+"a", value), clientv3.OpPut(m.prefix+"b", value)).Commit()
		require.NoError(m, err)
	}
	return from + times
}

// caughtUp waits until the target has all that home had.
func (m *mirrorTest) caughtUp() {
	m.Helper()
	reader := m.client("target")
	defer reader.Close()
	require.Eventually(m, func() bool {
		st, err := reader.MirrorStatus(m.Context())
		return err == nil && st[0].Usable && st[0].Behind == 0
	}, time.Minute, 20*time.Millisecond)
}

// readForward reads the two keys, one of them or both, until ctx ends.
func (m *mirrorTest) readForward(ctx context.Context, mirrored *int64) error {
	reader, last := m.client("target"), 0
	defer func() { *mirrored = reader.Stats().Mirrored }()
	for i := 0; ctx.Err() == nil; i++ {
		key, opts := m.prefix+"a", []clientv3.OpOption(nil)
		if i%2 == 0 {
			key, opts = m.prefix, []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(2)}
		}
		got, err := reader.Get(ctx, key, opts...)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for _, kv := range got.Kvs {
			n, err := strconv.Atoi(string(kv.Value))
			if err != nil || n < last || string(kv.Value) != string(got.Kvs[0].Value) {
				return fmt.Errorf("INCONSISTENT: %v behind %d", got.Kvs, last)
			}
			last = n
		}
	}
	return nil
}
