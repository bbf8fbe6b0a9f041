package replica

import (
	"bytes"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
)

// Compiling the source of an extension takes longer than everything else that a command
// asks for. So the server is told of one as early as possible, and finds it done when
// the command is applied. All partitions take part in a registration; the other entries
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
			g.r.cfg.Expect(&c, func() {})
		}
	}
}

// prepared goes on with a write of another server once this one is prepared for it, so
// that no partition waits for that here. Those of a session come in their order.
func (r *Replica) prepared(w *Write, proceed func()) {
	if r.cfg.Expect == nil || w.Session || !bytes.Contains(w.Command.Body, registration) {
		proceed()
		return
	}
	r.cfg.Expect(&command.Entry{Commands: []command.Command{w.Command}}, proceed)
}
