package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/version"
)

// A server of an earlier release that meets an entry of a later one ends there, and says what
// to do.
func TestAnEntryOfALaterReleaseEndsTheServer(t *testing.T) {
	for what, entry := range map[string]*raftpb.Entry{
		"format 8, this is stoa " + version.Stoa + ", which reads up to cluster version 0.7.0: start a release that knows level 8": {Data: []byte{byte(version.Newest) + 1, 0}},
		"decode step of a configuration": {Type: raftpb.EntryConfChange.Enum()},
	} {
		s := newStory(t, 1)
		g := s.replicas[0].groups[1]
		var fatal error
		g.r.cfg.Machine.Fatal = func(err error) { fatal = err }
		index := uint64(7)
		entry.Index = &index
		ended := make(chan bool, 1)
		go func() {
			defer func() { ended <- true }()
			g.deliver(&raftpb.Message{Entries: []*raftpb.Entry{entry}})
			ended <- false
		}()
		require.True(t, <-ended)
		require.ErrorContains(t, fatal, "group 1: entry 7 can't be executed: ")
		require.ErrorContains(t, fatal, what)
		require.Empty(t, g.committed)
	}
}
