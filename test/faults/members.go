package faults

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// memberFaults replace a member by an empty one of the same name and URLs, in the way of MemberReplace of etcd's robustness
// tests, and do something else meanwhile.
var memberFaults = map[string]func(*nemesis, context.Context) error{
	"replace one":        func(n *nemesis, ctx context.Context) error { return n.replace(ctx, n.any(), turnover{}) },
	"replace the leader": func(n *nemesis, ctx context.Context) error { return n.replace(ctx, n.leader(ctx), turnover{}) },
	"replace one by a learner": func(n *nemesis, ctx context.Context) error {
		return n.replace(ctx, n.any(), turnover{learner: true})
	},
	"kill one, replace it": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		if err := s.Kill(); err != nil {
			return err
		}
		return n.replace(ctx, s, turnover{})
	},
	// It goes on when it isn't a member any more, and hears nothing of it.
	"pause the leader, replace it": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		if err := s.Pause(); err != nil {
			return err
		}
		return n.replace(ctx, s, turnover{removed: s.Resume})
	},
	"cut the leader off from its peers, replace it": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		ways := both(n.at(s), n.peers(s)...)
		n.set(region.Quality{Cut: true}, ways)
		defer n.set(region.Quality{}, ways)
		return n.replace(ctx, s, turnover{gone: func() error { n.set(region.Quality{}, ways); return nil }})
	},
	// Four of five are a quorum without the one that is cut off, and three are one of them.
	"cut one of five off, replace another": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		if len(n.cluster.Servers) < 5 {
			return fmt.Errorf("%w: there are too few", errNotDone)
		}
		ways := both(n.at(s), n.peers(s)...)
		n.set(region.Quality{Cut: true}, ways)
		defer n.set(region.Quality{}, ways)
		return n.replace(ctx, n.others(s)[n.rnd.IntN(4)], turnover{removed: func() error { n.set(region.Quality{}, ways); return nil }})
	},
	"replace one, cut another off meanwhile": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		other := n.others(s)[0]
		return n.replace(ctx, s, turnover{gone: func() error { return n.cut(both(n.at(other), n.peers(other)...)) }})
	},
	"replace one, kill the leader as it joins": func(n *nemesis, ctx context.Context) error {
		return n.replace(ctx, n.any(), turnover{joins: func() error { return n.kill(ctx, n.leader(ctx)) }})
	},
	"replace one, kill all as it joins": func(n *nemesis, ctx context.Context) error {
		return n.replace(ctx, n.any(), turnover{joins: func() error { return n.kill(ctx, n.cluster.Servers...) }})
	},
}

// turnover is how a member is replaced, and what else happens: when the others have removed it, when its process has
// ended, and when the new one has been started.
type turnover struct {
	removed, gone, joins func() error
	learner              bool // the new one is, at first
}

// replace removes a member, whose process may have ended before or not, and adds it again with a new ID. That can't be
// given up halfway: once all servers and links are well, changes of members have to be possible.
func (n *nemesis) replace(ctx context.Context, s *process.Server, how turnover) error {
	if err := n.remove(ctx, s); err != nil {
		return err
	}
	if err := do(how.removed); err != nil {
		return err
	}
	n.idle(2 * time.Second) // it ends by itself, if it hears of it
	if err := s.Kill(); err != nil {
		return err
	}
	if err := n.wipe(s); err != nil {
		return err
	}
	if err := do(how.gone); err != nil {
		return err
	}
	if err := n.add(ctx, s, how.learner); err != nil {
		return err
	}
	s.Joins()
	if err := s.Start(); err != nil {
		return err
	}
	if how.joins != nil {
		n.idle(time.Second)
	}
	if err := do(how.joins); err != nil {
		return err
	}
	return n.joined(ctx, s, how.learner)
}

// wipe removes all data of a server that has ended.
func (n *nemesis) wipe(s *process.Server) error {
	if d := n.disk(s); d != nil {
		return d.Clear()
	}
	return os.RemoveAll(s.DataDir)
}

func do(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (n *nemesis) remove(ctx context.Context, s *process.Server) error {
	var id uint64
	return n.insist(ctx, s, "removing", func(ctx context.Context, c pb.ClusterClient) error {
		m, err := memberAt(ctx, c, s.PeerURL)
		if err != nil || m == nil && id != 0 { // an attempt before has removed it
			return err
		}
		if m == nil {
			return fmt.Errorf("%s isn't a member", s.PeerURL)
		}
		id = m.ID
		_, err = c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id})
		return err
	})
}

func (n *nemesis) add(ctx context.Context, s *process.Server, learner bool) error {
	return n.insist(ctx, s, "adding", func(ctx context.Context, c pb.ClusterClient) error {
		m, err := memberAt(ctx, c, s.PeerURL)
		if err != nil || m != nil { // an attempt before has added it
			return err
		}
		_, err = c.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{s.PeerURL}, IsLearner: learner})
		return err
	})
}

// joined waits until a member that was added serves, and has it promoted if it is a learner.
func (n *nemesis) joined(ctx context.Context, s *process.Server, learner bool) error {
	if err := n.well(ctx, s); err != nil || !learner {
		return err
	}
	return n.insist(ctx, s, "promoting", func(ctx context.Context, c pb.ClusterClient) error {
		m, err := memberAt(ctx, c, s.PeerURL)
		if err != nil || m == nil || !m.IsLearner {
			return err
		}
		_, err = c.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: m.ID})
		return err
	})
}

// memberAt is the member with a peer URL, nil if there is none.
func memberAt(ctx context.Context, c pb.ClusterClient, url string) (*pb.Member, error) {
	list, err := c.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list.Members, func(m *pb.Member) bool { return slices.Contains(m.PeerURLs, url) })
	if at < 0 {
		return nil, nil
	}
	return list.Members[at], nil
}

// insist asks one server after the other but one until a request succeeds. For some seconds after other faults
// changes of members are refused, since all have to have been connected for that long.
func (n *nemesis) insist(ctx context.Context, but *process.Server, what string, ask func(context.Context, pb.ClusterClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	said := ""
	for {
		asked := n.others(but)
		err := atServer(ctx, asked[n.rnd.IntN(len(asked))], func(ctx context.Context, conn *grpc.ClientConn) error {
			return ask(ctx, pb.NewClusterClient(conn))
		})
		if err == nil {
			n.say("  %s %s: done", what, but.Name)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %w", what, but.Name, err)
		}
		if !strings.Contains(said, err.Error()) {
			said += err.Error()
			n.say("  %s %s: %v", what, but.Name, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// atServer asks a server something, on a connection for that alone.
func atServer(ctx context.Context, s *process.Server, ask func(context.Context, *grpc.ClientConn) error) error {
	conn, err := dial(s.ClientURL)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return ask(ctx, conn)
}
