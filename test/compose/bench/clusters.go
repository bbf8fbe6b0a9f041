package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// names of the regions, and of the cluster that is at home in each.
var names = [2]string{"east", "west"}

// voters that a cluster has at home.
const voters = 3

// cluster is at home in one region and has one member in the other.
type cluster struct {
	*process.Cluster
	home *region.Region
}

// voters at home.
func (c *cluster) voters() []*process.Server { return c.Servers[:voters] }

// away is the member in the other region.
func (c *cluster) away() *process.Server { return c.Servers[voters] }

func place(r *region.Region) process.Place { return process.Place{Host: r.Addr, Enter: r.Do} }

// startCluster starts a region's cluster and its member in the other region.
func startCluster(ctx context.Context, bin process.Binary, home, other *region.Region) (*cluster, error) {
	dir, err := process.TempDir("compose")
	if err != nil {
		return nil, err
	}
	spec := process.Spec{Binary: bin, Nodes: voters, Dir: dir, Places: slices.Repeat([]process.Place{place(home)}, voters)}
	if bin.Stoa {
		spec.Nodes++
		spec.Places = append(spec.Places, place(other))
	}
	started, err := process.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: started, home: home}
	if !bin.Stoa {
		err = c.learn(ctx, place(other))
	}
	if err == nil {
		err = c.leadFromHome(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// learn adds etcd's learner.
func (c *cluster) learn(ctx context.Context, at process.Place) error {
	s, err := c.Joining("learner", at)
	if err != nil {
		return err
	}
	cli, err := dialFrom(c.home, urls(c.voters())...)
	if err != nil {
		return err
	}
	defer cli.Close()
	for tries := 0; ; tries++ {
		if _, err = cli.MemberAddAsLearner(ctx, []string{s.PeerURL}); err == nil {
			break
		}
		if tries > 100 || ctx.Err() != nil {
			return fmt.Errorf("adding a learner: %w", err)
		}
		time.Sleep(100 * time.Millisecond) // the members must have known each other for some seconds
	}
	if err := s.Start(); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// leadFromHome makes one of the voters at home the leader, if the one abroad is.
func (c *cluster) leadFromHome(ctx context.Context) error {
	for range 50 {
		away, home, err := c.who(ctx)
		if err != nil {
			return err
		}
		if home != 0 && away.leads {
			err = errors.Join(moveLeader(ctx, away, home))
		} else if home != 0 && away.knows {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the leader doesn't come home")
}

type abroad struct {
	knows, leads bool
	url          string
	from         *region.Region
}

// who asks the member abroad and one at home for their IDs.
func (c *cluster) who(ctx context.Context) (abroad, uint64, error) {
	a := abroad{url: c.away().ClientURL, from: c.home}
	cli, err := dialFrom(c.home, a.url)
	if err != nil {
		return a, 0, err
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := cli.Status(ctx, a.url)
	if err != nil {
		return a, 0, fmt.Errorf("asking the member abroad: %w", err)
	}
	a.knows, a.leads = st.Leader != 0, st.Leader == st.Header.MemberId
	one := c.voters()[0].ClientURL
	st, err = cli.Status(ctx, one)
	if err != nil {
		return a, 0, fmt.Errorf("asking a voter: %w", err)
	}
	return a, st.Header.MemberId, nil
}

func moveLeader(ctx context.Context, a abroad, to uint64) error {
	cli, err := dialFrom(a.from, a.url)
	if err != nil {
		return err
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = cli.MoveLeader(ctx, to)
	return err
}

// end stops the cluster and removes its data, unless something went wrong.
func (c *cluster) end(keep bool) {
	c.Close()
	if !keep {
		os.RemoveAll(c.Spec.Dir)
	}
}

func urls(servers []*process.Server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.ClientURL)
	}
	return out
}

// dialing makes gRPC connect from within a region.
func dialing(r *region.Region) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(r.Dial)}
}

func dialFrom(r *region.Region, endpoints ...string) (*clientv3.Client, error) {
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: dialing(r), Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", strings.Join(endpoints, ", "), err)
	}
	return cli, nil
}

// fill puts all keys that clients will use.
func (c *cluster) fill(ctx context.Context, keys []string) error {
	cli, err := dialFrom(c.home, urls(c.voters())...)
	if err != nil {
		return err
	}
	defer cli.Close()
	for some := range slices.Chunk(keys, 100) {
		var puts []clientv3.Op
		for _, k := range some {
			puts = append(puts, clientv3.OpPut(k, value))
		}
		if _, err := cli.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("putting the keys: %w", err)
		}
	}
	return nil
}
