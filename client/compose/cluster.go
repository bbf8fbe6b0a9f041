package compose

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// cluster is the connections to one cluster, which all forks of a client share.
//
// Nearly everything goes over one connection, to the first available member in
// the order of preference: reads, updates, syncs, leases and watches go through
// one member, whose state never goes back. Only for a learner of etcd, which
// serves only local reads, other requests go to voters.
type cluster struct {
	name string
	at   int
	cfg  Config
	of   Cluster
	// members in the order of preference.
	members []string
	id      atomic.Uint64 // of the cluster, 0: not known yet
	learner atomic.Bool   // the near member takes local reads only
	nearby  *vicinity     // reads mirrors
	// readable is which of the keys of readNothing the user may read, as far as is known.
	readable atomic.Int32
	// moves counts the changes of the members that are connected to. Calls behind one go to others than streams from before.
	moves atomic.Int64
	// suspected: the near member is being probed.
	suspected atomic.Bool

	mu      sync.Mutex
	near    dialled[*engine.Client]
	kind    Kind
	voters  dialled[*clientv3.Client]
	watches *watcher    // nil: there were none
	away    *time.Timer // stops the attempts to return to the preferred member
	present int         // the member that was gone to instead
	closed  bool
}

func newCluster(name string, at int, cfg Config) *cluster {
	of := cfg.Clusters[name]
	members := slices.Clone(of.Near)
	for _, e := range of.Endpoints {
		if !slices.Contains(members, e) {
			members = append(members, e)
		}
	}
	c := &cluster{name: name, at: at, cfg: cfg, of: of, members: members, kind: of.Kind}
	c.nearby = newVicinity(c)
	return c
}

// pickFirst takes the addresses in their order, instead of all in turn as etcd's
// client does.
const pickFirst = `{"loadBalancingConfig":[{"pick_first":{}}]}`

// connect makes the client, and detects the kind of the members, unless that is
// known. Forks that connect at the same time share the detection.
func (c *cluster) connect(ctx context.Context) (*engine.Client, Kind, error) {
	near, err := c.dial(ctx)
	if err != nil {
		return nil, Auto, err
	}
	c.mu.Lock()
	kind := c.kind
	c.mu.Unlock()
	if kind != Auto {
		return near, kind, nil
	}
	if kind, err = ask(ctx, near); err != nil {
		return nil, Auto, fmt.Errorf("asking what the members run: %w", err)
	}
	c.mu.Lock()
	c.kind = kind
	c.mu.Unlock()
	return near, kind, nil
}

// dial makes the client.
func (c *cluster) dial(ctx context.Context) (*engine.Client, error) {
	return reach(ctx, c, &c.near, c.enter)
}

// enter connects to the first member; or, where that doesn't authenticate the user because it keeps silent or is cut off from the others, to the next one,
// as leave does.
func (c *cluster) enter() (*engine.Client, error) {
	near, err := c.clientOf(c.members)
	for n := 1; n < len(c.members) && err != nil && c.of.Username != "" && isCutOff(err); n++ {
		if near, err = c.clientOf(c.from(n)); err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.present = n
			c.elsewhere()
		}
	}
	return near, err
}

func (c *cluster) clientOf(members []string) (*engine.Client, error) {
	options := []grpc.DialOption{
		grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(pickFirst),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
	}
	return engine.New(engine.Config{
		Endpoints: members, TLS: c.of.TLS, Username: c.of.Username, Password: c.of.Password,
		ClientID: c.cfg.ClientID, DialTimeout: c.cfg.DialTimeout, Pending: c.cfg.Pending, Logger: c.cfg.Logger.Named(c.name),
		DialOptions: append(options, c.of.DialOptions...),
	})
}

// refusedFor is the time for which all members of a cluster may refuse
// connections before requests to it fail: a short restart of a member does no
// harm.
const refusedFor = 500 * time.Millisecond

// refuses reports that all members have refused a client's connections. The
// client keeps trying.
func refuses(c *clientv3.Client) bool {
	return c.ActiveConnection().GetState() == connectivity.TransientFailure
}

// ask detects the members' kind by asking one after the other, until one
// answers or all refuse.
func ask(ctx context.Context, c *engine.Client) (Kind, error) {
	for began := time.Now(); ; {
		_, err := c.Partitions(ctx)
		switch status.Code(err) {
		case codes.OK, codes.PermissionDenied: // the list is root's
			return Stoa, nil
		case codes.Unimplemented:
			return Etcd, nil
		case codes.Unavailable:
			if refuses(c.Client) && time.Since(began) >= refusedFor {
				return Auto, fmt.Errorf("%w: %w", client.ErrRefused, err)
			}
		default:
			return Auto, err
		}
		select {
		case <-ctx.Done():
			return Auto, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// deciding is the client for requests that need a voter.
func (c *cluster) deciding(ctx context.Context) (*clientv3.Client, error) {
	if !c.learner.Load() {
		return c.nearest(), nil
	}
	return reach(ctx, c, &c.voters, func() (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{
			Endpoints: c.of.Endpoints, TLS: c.of.TLS, Username: c.of.Username, Password: c.of.Password,
			DialTimeout: c.cfg.DialTimeout, DialOptions: append(engine.Identify(c.cfg.ClientID), c.of.DialOptions...), Logger: c.cfg.Logger.Named(c.name),
		})
	})
}

// voter makes the client of those who need more than local reads, and don't find out themselves whether the near member is a learner.
func (c *cluster) voter(ctx context.Context) (*clientv3.Client, error) {
	near, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if len(c.of.Near) == 0 || c.of.Kind == Stoa || c.learner.Load() {
		return c.deciding(ctx)
	}
	if err := c.probe(ctx, near); err != nil {
		return nil, err
	}
	return c.deciding(ctx)
}

// probe makes a linearizable read at the near member, and leaves one that doesn't answer it, because it keeps silent or is cut off from
// the others. A learner's refusal is an answer, and remembered.
func (c *cluster) probe(ctx context.Context, near *engine.Client) error {
	asking, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	_, err := near.Get(asking, firstKey, clientv3.WithCountOnly())
	switch {
	case err == nil:
	case isLearner(err):
		c.learner.Store(true)
	case isCutOff(err):
		if ctx.Err() == nil {
			c.leave()
		}
		return err
	}
	return nil
}

// asked makes reads at a voter, for those who don't come again. A member that keeps silent, or is cut off from the others, is left behind half of the time, and
// the reads are made again: no error of theirs may be anything but a request's.
func (c *cluster) asked(ctx context.Context, read func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	once := func(ctx context.Context) error {
		by, err := c.voter(ctx)
		if err != nil {
			return err
		}
		return read(ctx, by)
	}
	if len(c.members) < 2 {
		return once(ctx)
	}
	until, _ := ctx.Deadline()
	half, stop := context.WithTimeout(ctx, time.Until(until)/2)
	defer stop()
	err := once(half)
	if err == nil || !isCutOff(err) || ctx.Err() != nil {
		return err
	}
	c.leave()
	return once(ctx)
}

// suspect probes the near member beside those who don't leave it themselves, when a request of theirs has failed.
func (c *cluster) suspect() {
	if len(c.members) < 2 || c.learner.Load() || !c.suspected.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer c.suspected.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), 2*c.cfg.Timeout)
		defer cancel()
		if near, err := c.dial(ctx); err == nil {
			_ = c.probe(ctx, near)
		}
	}()
}

func (c *cluster) nearest() *clientv3.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.near.client.Client
}

const backAfter = 5 * time.Second

// leave switches to another member, because the present one doesn't answer, and
// returns when it answers again. That those have gone who have asked is no reason: others use the member, too.
func (c *cluster) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) < 2 || c.away != nil || c.closed || !c.near.made {
		return
	}
	c.goTo(1)
	c.elsewhere()
}

// elsewhere is for a client that was connected to another member than the preferred one. It needs mu.
func (c *cluster) elsewhere() {
	c.cfg.Logger.Warn("a member keeps silent", zap.String("cluster", c.name), zap.String("member", c.members[0]))
	c.away = time.AfterFunc(backAfter, c.comeBack)
}

// goTo connects to a member, or if it can't be reached, to those behind it. It needs mu.
func (c *cluster) goTo(n int) {
	order := c.from(n)
	c.present = n
	c.moves.Add(1)
	// The first alone, so that the connection moves; then all.
	c.near.client.SetEndpoints(order[0])
	c.near.client.SetEndpoints(order...)
}

// from is the order of the members that begins with one. Behind the preferred one it is without that.
func (c *cluster) from(n int) []string {
	if n == 0 {
		return c.members
	}
	return slices.Concat(c.members[n:], c.members[1:n])
}

func (c *cluster) comeBack() {
	c.mu.Lock()
	near, present, closed := c.near.client, c.present, c.closed
	c.mu.Unlock()
	if closed {
		return
	}
	next := c.next(near, present)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if next != present {
		c.goTo(next)
	}
	c.away = nil
	if next > 0 {
		c.away = time.AfterFunc(backAfter, c.comeBack)
	}
}

// next is the member to be connected to behind one that was left for it: the preferred one if that serves again what needs a quorum, too; else the
// present one if it does, or another one that does. Where none does, the preferred one is, if it serves anything.
func (c *cluster) next(near *engine.Client, present int) int {
	serves := false
	if conn, err := near.Dial(c.members[0]); err == nil {
		defer conn.Close()
		by := pb.NewKVClient(conn)
		serves = c.hasAnswer(by, true)
		if serves && (c.learner.Load() || c.hasAnswer(by, false)) {
			return 0
		}
	}
	if c.hasAnswer(clientv3.RetryKVClient(near.Client), false) {
		return present
	}
	n, found := c.other(near, present)
	if !found && serves {
		return 0
	}
	return n
}

// other is the first member that serves what needs a quorum, beside the preferred and the present one; or if there is none, the one behind that.
func (c *cluster) other(near *engine.Client, present int) (n int, found bool) {
	answers := make([]bool, len(c.members))
	var all sync.WaitGroup
	for n := 1; n < len(c.members); n++ {
		if n == present {
			continue
		}
		all.Go(func() {
			if conn, err := near.Dial(c.members[n]); err == nil {
				defer conn.Close()
				answers[n] = c.hasAnswer(pb.NewKVClient(conn), false)
			}
		})
	}
	all.Wait()
	if n = slices.Index(answers, true); n > 0 {
		return n, true
	}
	return present%(len(c.members)-1) + 1, false
}

func (c *cluster) hasAnswer(by pb.KVClient, serializable bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.DialTimeout)
	defer cancel()
	_, err := by.Range(ctx, &pb.RangeRequest{Key: []byte(firstKey), Serializable: serializable, CountOnly: true})
	return !isCutOff(err) || isLearner(err) // to say that the user may not read it is an answer
}

func (c *cluster) close() {
	c.mu.Lock()
	near, voters, watches := c.near.client, c.voters.client, c.watches
	c.closed = true
	if c.away != nil {
		c.away.Stop()
	}
	c.mu.Unlock()
	c.nearby.close()
	if watches != nil {
		_ = watches.Close()
	}
	if near != nil {
		_ = near.Close()
	}
	if voters != nil {
		_ = voters.Close()
	}
}

// named adds the cluster's name to an error.
func (c *cluster) named(err error, unknown bool) error {
	return &ClusterError{Cluster: c.name, Unknown: unknown, Err: err}
}
