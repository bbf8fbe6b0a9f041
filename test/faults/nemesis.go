package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/test/disk"
	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// nemesis injects faults into the servers of a cluster, one after the other.
type nemesis struct {
	cluster *process.Cluster
	asked   []*process.Server     // what clients connect to: the servers, or sidecars
	world   *region.World         // where the servers are, nil if all are on this host
	disks   map[string]*disk.Disk // by the data directories of the servers, empty if these are on this host's
	rnd     *rand.Rand
	rest    time.Duration // the longest time between two faults
	moved   bool          // keys were asked to move
	say     func(format string, args ...any)

	releases *releaseOf // nil if the servers are of one release
}

// patience is for what takes servers seconds once links and processes are well, on a machine that is busy with other things.
const patience = 2 * time.Minute

// errNotDone is of a fault that the servers didn't let happen, which isn't counted.
var errNotDone = errors.New("not done")

// faults are what it may do, by name, on any network.
var faults = map[string]func(*nemesis, context.Context) error{
	"kill one":        func(n *nemesis, ctx context.Context) error { return n.kill(ctx, n.any()) },
	"kill the leader": func(n *nemesis, ctx context.Context) error { return n.kill(ctx, n.leader(ctx)) },
	"kill two":        func(n *nemesis, ctx context.Context) error { return n.kill(ctx, n.others(n.any())...) },
	"kill all":        func(n *nemesis, ctx context.Context) error { return n.kill(ctx, n.cluster.Servers...) },
	"kill one twice": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		if err := n.kill(ctx, s); err != nil {
			return err
		}
		return n.kill(ctx, s)
	},
	"pause one":        func(n *nemesis, ctx context.Context) error { return n.pause(n.any()) },
	"pause the leader": func(n *nemesis, ctx context.Context) error { return n.pause(n.leader(ctx)) },
	"pause two":        func(n *nemesis, ctx context.Context) error { return n.pause(n.others(n.any())...) },
	// The old leader continues after another has taken over, and must not act
	// as the leader.
	"pause the leader for long": func(n *nemesis, ctx context.Context) error {
		return n.pauseFor(3*time.Second, n.leader(ctx))
	},
	"kill a sidecar":          func(n *nemesis, ctx context.Context) error { return n.kill(ctx, n.asked[n.rnd.IntN(len(n.asked))]) },
	"pause a sidecar":         func(n *nemesis, ctx context.Context) error { return n.pause(n.asked[n.rnd.IntN(len(n.asked))]) },
	"move the leader":         func(n *nemesis, ctx context.Context) error { return n.move(ctx) },
	"resize":                  func(n *nemesis, ctx context.Context) error { return n.resize(ctx, nil) },
	"resize, kill one":        func(n *nemesis, ctx context.Context) error { return n.resize(ctx, n.any()) },
	"resize, kill the leader": func(n *nemesis, ctx context.Context) error { return n.resize(ctx, n.leader(ctx)) },
	"pause one, kill another": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		if err := s.Pause(); err != nil {
			return err
		}
		err := n.kill(ctx, n.others(s)[0])
		if rerr := s.Resume(); err == nil {
			err = rerr
		}
		return err
	},
}

func (n *nemesis) any() *process.Server {
	return n.cluster.Servers[n.rnd.IntN(len(n.cluster.Servers))]
}

func (n *nemesis) others(than *process.Server) []*process.Server {
	var out []*process.Server
	for _, s := range n.cluster.Servers {
		if s != than {
			out = append(out, s)
		}
	}
	return out
}

// leader asks the servers for the leader; any of them if none knows it.
func (n *nemesis) leader(ctx context.Context) *process.Server {
	if i := leaderOf(ctx, n.cluster); i >= 0 {
		return n.cluster.Servers[i]
	}
	return n.any()
}

// leaderOf is the index of the leader, -1 if no server knows it.
func leaderOf(ctx context.Context, c *process.Cluster) int {
	for i, s := range c.Servers {
		conn, err := dial(s.ClientURL)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		st, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
		cancel()
		conn.Close()
		if err == nil && st.Leader == st.Header.MemberId {
			return i
		}
	}
	return -1
}

// resize has the number of partitions changed, and kills a server meanwhile, if there is one. Like
// any request, this may then fail, or have taken effect.
func (n *nemesis) resize(ctx context.Context, killed *process.Server) error {
	conn, err := dial(n.any().ClientURL)
	if err != nil {
		return err
	}
	defer conn.Close()
	to := uint32(1 + n.rnd.IntN(6))
	asked := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := stoapb.NewPartitionsClient(conn).Resize(ctx, &stoapb.ResizeRequest{Partitions: to})
		asked <- err
	}()
	if killed != nil {
		n.idle(time.Duration(1+n.rnd.IntN(60)) * time.Millisecond)
		if err := n.kill(ctx, killed); err != nil {
			return err
		}
	}
	err = <-asked
	n.say("to %d partitions: %v", to, err)
	if killed == nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// kill ends servers with kill -9 and starts them again a little later.
func (n *nemesis) kill(ctx context.Context, servers ...*process.Server) error {
	for _, s := range servers {
		if err := s.Kill(); err != nil {
			return err
		}
	}
	n.idle(1200 * time.Millisecond)
	return n.revive(ctx, servers...)
}

// revive starts servers and waits until they serve.
func (n *nemesis) revive(ctx context.Context, servers ...*process.Server) error {
	for _, s := range servers {
		if err := s.Start(); err != nil {
			return err
		}
	}
	for _, s := range servers {
		if err := n.well(ctx, s); err != nil {
			return fmt.Errorf("after kill -9: %w", err)
		}
	}
	return nil
}

// well waits until a server serves.
func (n *nemesis) well(ctx context.Context, s *process.Server) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.WaitReady(ctx)
}

func (n *nemesis) pause(servers ...*process.Server) error {
	return n.pauseFor(time.Duration(100+n.rnd.IntN(1400))*time.Millisecond, servers...)
}

func (n *nemesis) pauseFor(d time.Duration, servers ...*process.Server) error {
	for _, s := range servers {
		if err := s.Pause(); err != nil {
			return err
		}
	}
	time.Sleep(d)
	for _, s := range servers {
		if err := s.Resume(); err != nil {
			return err
		}
	}
	return nil
}

// move asks the leader to transfer its leadership. No process ends.
func (n *nemesis) move(ctx context.Context) error {
	from := n.leader(ctx)
	to := n.others(from)[n.rnd.IntN(len(n.cluster.Servers)-1)]
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	target, err := statusOf(ctx, to)
	if err == nil {
		err = moveLeader(ctx, from, target.Header.MemberId)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotDone, err)
	}
	return nil
}

func statusOf(ctx context.Context, s *process.Server) (*pb.StatusResponse, error) {
	conn, err := dial(s.ClientURL)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
}

func moveLeader(ctx context.Context, from *process.Server, to uint64) error {
	conn, err := dial(from.ClientURL)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pb.NewMaintenanceClient(conn).MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: to})
	return err
}

func (n *nemesis) idle(atMost time.Duration) { time.Sleep(time.Duration(n.rnd.Int64N(int64(atMost)))) }

// known is a fault by its name, which must be one.
func known(name string) func(*nemesis, context.Context) error {
	for _, some := range []map[string]func(*nemesis, context.Context) error{faults, networkFaults, diskFaults, clockFaults, moveFaults, memberFaults, releaseFaults} {
		if fault := some[name]; fault != nil {
			return fault
		}
	}
	panic("no fault is named " + name)
}

// run does fault after fault until the context ends, with time to recover in
// between, and returns how many of each name were done.
func (n *nemesis) run(ctx context.Context, names []string) (done map[string]int, err error) {
	done = map[string]int{}
	for {
		n.idle(n.rest)
		if ctx.Err() != nil {
			return done, n.finish(context.WithoutCancel(ctx))
		}
		name := names[n.rnd.IntN(len(names))]
		n.say("%s", name)
		err := known(name)(n, context.WithoutCancel(ctx))
		switch {
		case errors.Is(err, errNotDone):
			n.say("  %v", err)
		case err != nil:
			return done, fmt.Errorf("%s: %w", name, err)
		default:
			done[name]++
		}
	}
}

// finish brings to an end what faults have begun: keys arrive, and all servers run the later release.
func (n *nemesis) finish(ctx context.Context) error {
	if err := n.arrived(ctx); err != nil || n.releases == nil {
		return err
	}
	if err := n.upgrade(ctx); !errors.Is(err, errNotDone) {
		return err
	}
	return nil
}
