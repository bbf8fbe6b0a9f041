package node

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

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

// initialCheckLimit is how long a server that knows a leader waits for its first check.
const initialCheckLimit = 10 * time.Second

// mayShow reports whether the state that was loaded may be shown: a check has agreed with it, if the
// configuration asks for that, or there is nobody to compare it with. As in etcd, members that are away don't
// keep this one from serving.
func (n *Node) mayShow(c *core) bool {
	switch {
	case !n.cfg.InitialCheck || len(c.replica.Peers()) == 0 || !c.machine.Checks():
		return true
	case n.Fenced():
		return false
	case c.replica.Agreed():
		return true
	}
	now := time.Now()
	n.led.CompareAndSwap(nil, &now)
	if now.Sub(*n.led.Load()) < initialCheckLimit {
		return false
	}
	n.unchecked.Do(func() {
		n.log.Warn("no majority could be compared with: serving without the check that --feature-gates=InitialCorruptCheck=true asks for")
	})
	return true
}
