package node

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/vfs"
)

// A fenced server (package check) tells its disk, so that it doesn't serve after a restart what it
// must not. An operator may make the file: a server that finds it, with whatever content, takes in
// another's state before it serves.
func (n *Node) fencePath() string { return filepath.Join(n.cfg.DataDir, "member", "fenced") }

// restoreFence fences the server if the one before was.
func (n *Node) restoreFence() error {
	text, err := os.ReadFile(n.fencePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading whether this member is fenced: %w", err)
	}
	var by check.Verdict
	if raw, err := hex.DecodeString(strings.TrimSpace(string(text))); err == nil {
		by, _ = check.DecodeVerdict(raw) // without one any other member may send its state
	}
	n.fence.Restore(by)
	n.cfg.Metrics.Server.Fenced.Set(1)
	n.log.Warn("this member is fenced: it serves nothing before it has another's state, and the next check agrees", zap.String("path", n.fencePath()))
	return nil
}

// fenced follows the fence. It is called when a verdict has fenced this server, or ended that, before
// anything else is executed, and when the scrubber has. What a client is given from then on must not
// come from this state.
func (n *Node) fenced(*check.Fenced) {
	n.fencing.Lock() // what is done last is by what the fence is last
	defer n.fencing.Unlock()
	now := n.fence.Now()
	if now == nil {
		if err := os.Remove(n.fencePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Warn("removing the note that this member was fenced failed; after a restart it will be again", zap.Error(err))
		}
		n.hub.Fence(nil)
		n.cfg.Metrics.Server.Fenced.Set(0)
		return
	}
	n.hub.Fence(fault.Fenced)
	n.sessions.End(fault.Fenced)
	n.cfg.Metrics.Server.Fenced.Set(1)
	if err := n.storeFence(now.By); err != nil {
		n.fatal(fmt.Errorf("noting that this member is fenced: %w", err))
	}
}

func (n *Node) storeFence(by check.Verdict) error {
	f, err := os.OpenFile(n.fencePath(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(hex.EncodeToString(by.AppendTo(nil)) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return vfs.OS().SyncDir(filepath.Dir(n.fencePath()))
}

// Fenced reports whether this server differs from a majority of the others, and so serves nothing.
func (n *Node) Fenced() bool { return n.fence.Now() != nil }

// checkTicks is the time between two checks, in ticks; 0: there are those that are asked for.
func (n *Node) checkTicks() int64 {
	if n.cfg.CheckInterval <= 0 {
		return 0
	}
	return max(1, int64(n.cfg.CheckInterval/n.cfg.Tick))
}
