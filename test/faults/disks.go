package faults

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/internal/vfs"
	"github.com/stoa-kv/stoa/test/disk"
	"github.com/stoa-kv/stoa/test/process"
)

// Faults of disks: each server has its data on a disk of its own, which forgets what wasn't synced when
// its power is cut, fails, fills up, and is slow.

// diskFaults are those of faults that need disks.
var diskFaults = map[string]func(*nemesis, context.Context) error{
	"power of one":        func(n *nemesis, ctx context.Context) error { return n.powerCut(ctx, n.any()) },
	"power of the leader": func(n *nemesis, ctx context.Context) error { return n.powerCut(ctx, n.leader(ctx)) },
	"power of two":        func(n *nemesis, ctx context.Context) error { return n.powerCut(ctx, n.others(n.any())...) },
	"power of all":        func(n *nemesis, ctx context.Context) error { return n.powerCut(ctx, n.cluster.Servers...) },
	// What a killed server had written, and hadn't synced, is still there when it starts, and it may build on that.
	"kill one, then its power": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		if err := n.kill(ctx, s); err != nil {
			return err
		}
		n.idle(500 * time.Millisecond)
		return n.powerCut(ctx, s)
	},
	"kill all, then their power": func(n *nemesis, ctx context.Context) error {
		if err := n.kill(ctx, n.cluster.Servers...); err != nil {
			return err
		}
		n.idle(500 * time.Millisecond)
		return n.powerCut(ctx, n.cluster.Servers...)
	},
	"slow disk":         func(n *nemesis, _ context.Context) error { return n.slow(n.any()) },
	"slow disk, leader": func(n *nemesis, ctx context.Context) error { return n.slow(n.leader(ctx)) },
	"slow disks":        func(n *nemesis, _ context.Context) error { return n.slow(n.cluster.Servers...) },
	"the disk hangs":    func(n *nemesis, ctx context.Context) error { return n.hang(n.leader(ctx)) },
	"a sync fails":      func(n *nemesis, ctx context.Context) error { return n.failing(ctx, n.any(), syscall.EIO, vfs.OpSync) },
	"a sync fails, leader": func(n *nemesis, ctx context.Context) error {
		return n.failing(ctx, n.leader(ctx), syscall.EIO, vfs.OpSync)
	},
	"a write fails": func(n *nemesis, ctx context.Context) error { return n.failing(ctx, n.any(), syscall.EIO, vfs.OpWrite) },
	"the disk is full": func(n *nemesis, ctx context.Context) error {
		return n.failing(ctx, n.any(), syscall.ENOSPC, vfs.OpWrite, vfs.OpPreallocate, vfs.OpCreate, vfs.OpMkdir)
	},
}

func (n *nemesis) disk(s *process.Server) *disk.Disk { return n.disks[s.DataDir] }

// powerCut ends servers, whose disks lose what wasn't synced, and starts them again a little later.
func (n *nemesis) powerCut(ctx context.Context, servers ...*process.Server) error {
	for _, s := range servers {
		if err := s.Kill(); err != nil {
			return err
		}
	}
	for _, s := range servers {
		if err := n.disk(s).Lose(n.rnd); err != nil {
			return err
		}
	}
	n.idle(1200 * time.Millisecond)
	return n.revive(ctx, servers...)
}

// slow has each sync take 20 to 170 ms longer, for a while.
func (n *nemesis) slow(servers ...*process.Server) error {
	for _, s := range servers {
		n.disk(s).Slow(time.Duration(20+n.rnd.IntN(150)) * time.Millisecond)
	}
	time.Sleep(time.Duration(500+n.rnd.IntN(3000)) * time.Millisecond)
	for _, s := range servers {
		n.disk(s).Slow(0)
	}
	return nil
}

// hang has one sync of each file take seconds.
func (n *nemesis) hang(s *process.Server) error {
	d := time.Duration(500+n.rnd.IntN(4000)) * time.Millisecond
	n.disk(s).Slow(d)
	time.Sleep(d / 2)
	n.disk(s).Slow(0)
	time.Sleep(d / 2)
	return nil
}

// failing has operations fail until the server has ended, which it has to do, and starts it again. Every other time
// power is cut then as well: what a failed sync should have written is in memory until then.
func (n *nemesis) failing(ctx context.Context, s *process.Server, with syscall.Errno, ops ...vfs.Op) error {
	fails := map[vfs.Op]bool{}
	for _, op := range ops {
		fails[op] = true
	}
	n.disk(s).Fail(func(op vfs.Op) syscall.Errno {
		if fails[op] {
			return with
		}
		return 0
	})
	code, err := s.Wait(30 * time.Second)
	n.disk(s).Fail(nil)
	switch {
	case err != nil:
		return fmt.Errorf("its disk fails: %w", err)
	case code == 0 || !strings.Contains(s.LogTail(10000), with.Error()):
		return fmt.Errorf("%s ended with code %d, without a word of %q; log:\n%s", s.Name, code, with.Error(), s.LogTail(2000))
	}
	if n.rnd.IntN(2) == 0 {
		if err := n.disk(s).Lose(n.rnd); err != nil {
			return err
		}
	}
	n.idle(1200 * time.Millisecond)
	return n.revive(ctx, s)
}
