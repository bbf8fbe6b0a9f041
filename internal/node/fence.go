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

// untoldPath is a file that is there until operators have been told that this member was fenced, though it may serve
// again and have been restarted.
func (n *Node) untoldPath() string { return filepath.Join(n.cfg.DataDir, "member", "untold") }

// restoreFence fences the server if the one before was, and goes on to tell operators.
func (n *Node) restoreFence() error {
	if _, err := os.Stat(n.untoldPath()); err == nil {
		n.fence.RestoreUntold()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking whether operators know that this member was fenced: %w", err)
	}
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
		n.forget(n.fencePath(), "removing the note that this member was fenced failed; after a restart it will be again")
		n.hub.Fence(nil)
		n.cfg.Metrics.Server.Fenced.Set(0)
		return
	}
	n.hub.Fence(fault.Fenced)
	n.sessions.End(fault.Fenced)
	n.cfg.Metrics.Server.Fenced.Set(1)
	var err error
	if n.fence.Untold() {
		err = note(n.untoldPath(), "")
	}
	if err == nil {
		err = note(n.fencePath(), hex.EncodeToString(now.By.AppendTo(nil))+"\n")
	}
	if err != nil {
		n.fatal(fmt.Errorf("noting that this member is fenced: %w", err))
	}
}

// told follows the fence when operators have been told.
func (n *Node) told() {
	n.fencing.Lock()
	defer n.fencing.Unlock()
	if !n.fence.Untold() {
		n.forget(n.untoldPath(), "removing the note that operators have to be told of a fence failed; after a restart they will be again")
	}
}

func note(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return vfs.OS().SyncDir(filepath.Dir(path))
}

// forget removes a note durably: one that came back would be of a fence that has ended, and a server that is alone by then had nobody
// to end it.
func (n *Node) forget(path, failed string) {
	err := os.Remove(path)
	if err == nil {
		err = vfs.OS().SyncDir(filepath.Dir(path))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn(failed, zap.Error(err))
	}
}

// Fenced reports whether this server differs from a majority of the others, and so serves nothing.
func (n *Node) Fenced() bool { return n.fence.Now() != nil }

// Fences is how often the state of this server was found to be wrong.
func (n *Node) Fences() uint64 { return n.fence.Times() }

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
