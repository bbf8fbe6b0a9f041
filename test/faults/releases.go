package faults

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// releaseFaults have servers run another release after kill -9, in the ways that docs/operations.md allows: back and forth
// while one of them runs the earlier one, forth to the end, and back again by a downgrade.
var releaseFaults = map[string]func(*nemesis, context.Context) error{
	"change a release": func(n *nemesis, ctx context.Context) error {
		return n.change(ctx, func(*process.Server) error { return nil })
	},
	"change a release, cut the leader off from its peers": func(n *nemesis, ctx context.Context) error {
		return n.change(ctx, func(*process.Server) error {
			s := n.leader(ctx)
			return n.cut(both(n.at(s), n.peers(s)...))
		})
	},
	"change a release, cut another off": func(n *nemesis, ctx context.Context) error {
		return n.change(ctx, func(s *process.Server) error {
			other := n.others(s)[0]
			return n.cut(both(n.at(other), append(n.peers(other), n.clients())...))
		})
	},
	"change a release, bad network": func(n *nemesis, ctx context.Context) error {
		return n.change(ctx, func(*process.Server) error {
			n.disturb(region.Quality{Loss: 0.05, Duplicate: 0.1, Jitter: 30 * time.Millisecond}, n.everywhere(), 1000, 5000)
			return nil
		})
	},
	"change a release, kill all": func(n *nemesis, ctx context.Context) error {
		return n.change(ctx, func(*process.Server) error { return n.kill(ctx, n.cluster.Servers...) })
	},
	"upgrade the others": func(n *nemesis, ctx context.Context) error { return n.upgrade(ctx) },
	"downgrade":          func(n *nemesis, ctx context.Context) error { return n.downgrade(ctx) },
}

// The versions of clusters of the two releases.
const (
	versionBefore = "0.6.0"
	versionNow    = "0.7.0"
)

// untilWell is longer than a server takes for connected another one that has ended behind a cut: an operator, too,
// waits until all members are well before the next one changes its release.
const untilWell = 3 * time.Second

// releaseOf are the two releases, and which servers run the earlier one. While there is one, and the leader doesn't take it for
// one of those that run the later, the cluster's version stays.
type releaseOf struct {
	before, now process.Binary
	earlier     map[*process.Server]bool
}

// allEarlier are the servers of a cluster that begins with the earlier release.
func allEarlier(c *process.Cluster, before, now process.Binary) *releaseOf {
	r := &releaseOf{before: before, now: now, earlier: map[*process.Server]bool{}}
	for _, s := range c.Servers {
		r.earlier[s] = true
	}
	return r
}

// change has a server run the other release, and does something else when it has been started.
func (n *nemesis) change(ctx context.Context, meanwhile func(*process.Server) error) error {
	r := n.releases
	if len(r.earlier) == 0 {
		return fmt.Errorf("%w: the cluster's version has moved", errNotDone)
	}
	var able []*process.Server
	for _, s := range n.cluster.Servers {
		if !r.earlier[s] || len(r.earlier) > 1 {
			able = append(able, s)
		}
	}
	s := able[n.rnd.IntN(len(able))]
	if err := n.startAs(s, !r.earlier[s]); err != nil {
		return err
	}
	if err := meanwhile(s); err != nil {
		return err
	}
	return n.well(ctx, s)
}

// startAs kills a server and starts it with a release.
func (n *nemesis) startAs(s *process.Server, earlier bool) error {
	time.Sleep(untilWell)
	if err := s.Kill(); err != nil {
		return err
	}
	if earlier {
		n.releases.earlier[s] = true
		s.Use(n.releases.before)
	} else {
		delete(n.releases.earlier, s)
		s.Use(n.releases.now)
	}
	n.say("  %s runs the earlier release: %v", s.Name, earlier)
	n.idle(1200 * time.Millisecond)
	return s.Start()
}

// upgrade has all servers run the later release, one after the other, and waits for the cluster's version.
func (n *nemesis) upgrade(ctx context.Context) error {
	if len(n.releases.earlier) == 0 {
		return fmt.Errorf("%w: all run it", errNotDone)
	}
	for _, s := range n.cluster.Servers {
		if !n.releases.earlier[s] {
			continue
		}
		if err := n.startAs(s, false); err != nil {
			return err
		}
		if err := n.well(ctx, s); err != nil {
			return err
		}
	}
	return n.await(ctx, "the version "+versionNow, func(s *process.Server) bool {
		_, cluster, err := s.Versions()
		return err == nil && cluster == versionNow
	})
}

// downgrade lowers the cluster's version, waits until all files have it, and has one server run the earlier release, so that
// it stays.
func (n *nemesis) downgrade(ctx context.Context) error {
	if len(n.releases.earlier) > 0 {
		return fmt.Errorf("%w: the cluster's version is low", errNotDone)
	}
	const ready = "The server is ready to downgrade"
	before := map[*process.Server]int{}
	for _, s := range n.cluster.Servers {
		before[s] = strings.Count(s.LogTail(1<<30), ready)
	}
	if err := n.lower(ctx); err != nil {
		return err
	}
	err := n.await(ctx, ready, func(s *process.Server) bool { return strings.Count(s.LogTail(1<<30), ready) > before[s] })
	if err != nil {
		return err
	}
	s := n.any()
	if err := n.startAs(s, true); err != nil {
		return err
	}
	if err := n.well(ctx, s); err != nil {
		return err
	}
	// Until then the others would hold the version down without that server, too, also after all are upgraded.
	return n.await(ctx, "the end of the downgrade", func(s *process.Server) bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		st, err := statusOf(ctx, s)
		return err == nil && !st.GetDowngradeInfo().GetEnabled()
	})
}

// lower asks one server after the other for the downgrade, until it is under way.
func (n *nemesis) lower(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := lowerAt(ctx, n.any())
		if err == nil || strings.Contains(err.Error(), "downgrade job in progress") {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func lowerAt(ctx context.Context, s *process.Server) error {
	return atServer(ctx, s, func(ctx context.Context, conn *grpc.ClientConn) error {
		target := strings.TrimSuffix(versionBefore, ".0")
		_, err := pb.NewMaintenanceClient(conn).Downgrade(ctx, &pb.DowngradeRequest{Action: pb.DowngradeRequest_ENABLE, Version: target})
		return err
	})
}

// await waits until something holds of all servers.
func (n *nemesis) await(ctx context.Context, what string, of func(*process.Server) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, s := range n.cluster.Servers {
		for !of(s) {
			if ctx.Err() != nil {
				return fmt.Errorf("%s: waiting for %s: %w", s.Name, what, ctx.Err())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	n.say("  %s: all", what)
	return nil
}
