package replica

import (
	"bytes"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
)

// Compiling the source of an extension takes longer than everything else that a command
// asks for. So all servers are prepared for it before it is proposed (Announce). A server
// that missed that begins when the entry comes into its log, a commit ahead of its
// application. All partitions take part in a registration; the other entries
// are passed over by their first bytes, and with one partition by a search for its prefix.

var registration = []byte(extension.Root)

// expect tells of what has come into this server's log.
func (g *group) expect(entries []*raftpb.Entry) {
	if g.r.cfg.Expect == nil {
		return
	}
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal || command.PartsOf(e.GetData()).Len() < len(g.r.groups) || !bytes.Contains(e.GetData(), registration) {
			continue
		}
		if c, err := command.Decode(e.GetData()); err == nil {
			g.r.cfg.Expect(&c)
		}
	}
}
