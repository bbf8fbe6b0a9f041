package backend_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// A snapshot is being sent to a slow client while the file is defragmented, or closed so that another can be installed. A
// read that is under way at that moment ends when it has read.
func TestAReadOfAReplacedFileDoesNotWaitForASlowSnapshot(t *testing.T) {
	for name, replace := range map[string]func(*backend.Backend) error{
		"defragmentation": (*backend.Backend).Defragment, "close": (*backend.Backend).Close,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(open(t, filepath.Join(t.TempDir(), "db")))
			s.fill(t, 1)
			slow, err := s.be.Snapshot()
			require.NoError(t, err)
			reads, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				_ = s.be.Scan(0, backend.Current, func(store.Revision, kvwire.KeyValue, bool) bool {
					close(reads)
					<-goOn
					return false
				})
			}()
			<-reads
			require.NoError(t, replace(s.be))
			time.Sleep(50 * time.Millisecond) // the old file is closed in the background
			close(goOn)
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Error("it waits for the snapshot")
			}
			require.NoError(t, slow.Close())
			<-done
		})
	}
}
