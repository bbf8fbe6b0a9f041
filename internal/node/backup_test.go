package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// While a client takes in a backup, the server finds that its state is wrong, takes in another's and serves again. The
// backup is of the wrong one, and doesn't end well.
func TestABackupOfAWrongStateIsNotFinished(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.ready()
	n := c.nodes[0]
	content, _, _, err := n.Snapshot(t.Context())
	require.NoError(t, err)
	defer content.Close()
	_, err = io.ReadFull(content, make([]byte, 1))
	require.NoError(t, err)
	require.True(t, n.fence.Damaged())
	_, _, _, err = n.Snapshot(t.Context())
	require.ErrorIs(t, err, fault.Fenced)
	n.fence.Installed()
	require.True(t, n.fence.Judge(check.Agrees, check.Verdict{}))
	_, err = io.Copy(io.Discard, content)
	require.ErrorIs(t, err, fault.Fenced)
}

// halves is a server of two partitions whose loops stand still: each executes what a test gives it.
type halves struct {
	t *testing.T
	*Node
	c    *core
	rev  int64
	keys [2]string // of partition 0 and 1
}

func newHalves(t *testing.T) *halves {
	c := newCluster(t, 1, 2)
	c.ready()
	n := c.nodes[0]
	h := &halves{t: t, Node: n, c: n.core.Load()}
	for p := range h.keys {
		h.keys[p] = c.keyOf(p)
		h.rev = c.put(0, h.keys[p], "before")
	}
	h.c.stopLoops()
	return h
}

// keyOf is a key of a partition.
func (c *cluster) keyOf(p int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("/d%d/k", i); c.nodes[0].core.Load().machine.Placement().Partition([]byte(key)) == p {
			return key
		}
	}
}

// put has a partition execute the put of a value to its key.
func (h *halves) put(p int, value string, rev int64) {
	index, term := h.c.stores[p].Applied()
	body, err := marshalled(&pb.PutRequest{Key: []byte(h.keys[p]), Value: []byte(value)})
	require.NoError(h.t, err)
	e := &command.Entry{Stamp: rev, Commands: []command.Command{{Kind: command.Put, Body: body}}}
	h.c.machine.Local(p, index+1, term, e, func(_ int, r apply.Result) { require.NoError(h.t, r.Err) })
}

// meet has both partitions execute an entry together.
func (h *halves) meet() {
	var at []apply.Arrival
	e := &command.Entry{Stamp: h.rev + 100, Commands: []command.Command{{Kind: command.LeaseCheckpoint}}}
	for p, s := range h.c.stores {
		index, term := s.Applied()
		at = append(at, apply.Arrival{Partition: p, Index: index + 1, Term: term})
		e.Parts |= 1 << p
	}
	h.c.machine.Rendezvous(at, e, nil)
}

// values returns those of the keys in a backup.
func (h *halves) values(s *backend.Snapshot, err error) [2]string {
	require.NoError(h.t, err)
	all := contentOf(h.t, s)
	return [2]string{all[h.keys[0]], all[h.keys[1]]}
}

// contentOf returns the values of the keys in a backup, and closes it.
func contentOf(t *testing.T, s *backend.Snapshot) map[string]string {
	var content bytes.Buffer
	_, err := s.WriteTo(&content)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	file := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.WriteFile(file, content.Bytes(), 0o600))
	b, err := backend.Open(file, backend.Options{Foreign: true, ReadOnly: true})
	require.NoError(t, err)
	defer b.Close()
	values := map[string]string{}
	require.NoError(t, b.Scan(0, backend.Current, func(_ store.Revision, kv kvwire.KeyValue, _ bool) bool {
		values[string(kv.Key())] = string(kv.Value())
		return true
	}))
	return values
}

// A member that doesn't hear of the others gives a backup once it does: what they have acknowledged is in it.
func TestABackupHasWhatWasAcknowledgedByOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	c.put(0, "/d/k", "before")
	c.get(2, "/d/k", "") // it has caught up
	c.servers[2].Stop()
	c.put(0, "/d/k", "acknowledged")
	made := make(chan map[string]string)
	go func() {
		defer close(made)
		if s, err := c.nodes[2].backup(t.Context()); err == nil {
			made <- contentOf(t, s)
		}
	}()
	time.Sleep(100 * time.Millisecond)
	c.serve(2)
	require.Equal(t, "acknowledged", (<-made)["/d/k"])
}

// The second partition has a write, and the first one lacks what was written before. A backup is made once both are
// at one place.
func TestABackupWaitsUntilThePartitionsMeet(t *testing.T) {
	h := newHalves(t)
	require.Equal(t, [2]string{"before", "before"}, h.values(h.backup(t.Context())))
	h.put(1, "second", h.rev+2)
	go func() {
		for !h.c.meets.Load() { // which a backup sets when it awaits its cut
			time.Sleep(time.Millisecond)
		}
		h.put(0, "first", h.rev+1)
		h.meet()
		h.put(0, "third", h.rev+200)
	}()
	require.Equal(t, [2]string{"first", "second"}, h.values(h.backup(t.Context())))
}

// If they don't meet, one is of the last state that both have had.
func TestABackupOfPartitionsThatDoNotMeetIsStale(t *testing.T) {
	h := newHalves(t)
	h.put(1, "second", h.rev+2)
	require.Equal(t, [2]string{"before", "before"}, h.values(h.staleBackup(t.Context())))
}

// Each such backup is a copy of the file: of several at once, others wait until one has been read. One that is given up meanwhile waits no longer.
func TestStaleBackupsAreCopiedOneByOne(t *testing.T) {
	h := newHalves(t)
	h.put(1, "second", h.rev+2)
	first, err := h.staleBackup(t.Context())
	require.NoError(t, err)
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = h.staleBackup(impatient)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	next := make(chan *backend.Snapshot, 1)
	go func() {
		s, err := h.staleBackup(t.Context())
		assert.NoError(t, err)
		next <- s
	}()
	require.Equal(t, [2]string{"before", "before"}, h.values(first, nil))
	require.Equal(t, [2]string{"before", "before"}, h.values(<-next, nil))
	require.Empty(t, h.copying)
}

// If no partition is beyond the state that all have had, nothing has to be taken from the file: it isn't copied, for which there may be no room,
// and its sums stay.
func TestAStaleBackupOfPartitionsThatAreTogetherIsTheFile(t *testing.T) {
	h := newHalves(t)
	bytesOf := func(s *backend.Snapshot, err error) []byte {
		require.NoError(t, err)
		defer s.Close()
		var content bytes.Buffer
		_, err = s.WriteTo(&content)
		require.NoError(t, err)
		return content.Bytes()
	}
	require.NoError(t, h.flushNow())
	require.True(t, bytes.Equal(bytesOf(h.c.backend.Snapshot()), bytesOf(h.staleBackup(t.Context()))))
}

// A server that has heard of no leader since it was started knows of no state that all partitions have had but that of the one with the fewest
// writes. A backup of that would lack nearly all that was acknowledged.
func TestNoBackupIsOlderThanWhatWasLoaded(t *testing.T) {
	var log logged
	c := newCluster(t, 2, 2, log.keep)
	c.ready()
	rare, frequent := c.keyOf(0), c.keyOf(1)
	c.put(0, rare, "v")
	for range 5 {
		c.put(0, frequent, "v")
	}
	c.stop(0)
	c.stop(1)
	c.start(0)
	_, err := c.nodes[0].staleBackup(t.Context())
	require.ErrorIs(t, err, fault.Timeout)
	log.line(t, 0, "no backup is given: until there is a leader, all that is known of all partitions is older than what was loaded")
}

// A backup that nobody reads on keeps the pages of the file for a limited time, and one that is read slowly as long as it takes.
func TestABackupThatIsNotReadIsGivenUp(t *testing.T) {
	t.Parallel()
	const stall = 2 * time.Second // more than a machine with other work stands still for
	c := newCluster(t, 1, 1, func(c *Config) { c.BackupStall = stall })
	c.ready()
	c.put(0, "/k", strings.Repeat("v", 1<<20))
	n := c.nodes[0]

	slow, size, _, err := n.Snapshot(t.Context())
	require.NoError(t, err)
	began, read := time.Now(), int64(0)
	for piece := make([]byte, size/10+1); read < size; time.Sleep(stall / 8) {
		got, err := io.ReadFull(slow, piece[:min(int64(len(piece)), size-read)])
		require.NoError(t, err)
		read += int64(got)
	}
	require.Greater(t, time.Since(began), stall)
	_, err = slow.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	stuck, _, _, err := n.Snapshot(t.Context())
	require.NoError(t, err)
	_, err = io.ReadFull(stuck, make([]byte, 10))
	require.NoError(t, err)
	file := n.core.Load().backend
	require.NotZero(t, file.Readers())
	require.Eventually(t, func() bool { return file.Readers() == 0 }, 20*time.Second, 10*time.Millisecond, "it keeps its pages")
	_, err = io.Copy(io.Discard, stuck)
	require.ErrorContains(t, err, "nothing of it has been read for 2s")
}
