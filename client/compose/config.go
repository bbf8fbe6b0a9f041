package compose

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Config lists the clusters of a composition and their keys. Clusters and
// Routes are needed; everything else has a default.
type Config struct {
	// Clusters by the names used in routes, errors and Stats.
	Clusters map[string]Cluster
	// Routes map keys to clusters: the longest prefix of a key decides. A key
	// without a route is refused with ErrNoRoute.
	Routes []Route
	// Local names the cluster next to this client, if there is one: keys that are mirrored
	// there are read there. Others, and all keys if it is empty, are read at their home.
	Local string
	// SpanRanges lets Get read a range that lies in several clusters: piece by
	// piece, in the order of the keys, as Algorithm 1 demands. The pieces are
	// read at different times. Without it such a range is refused with
	// ErrSpans.
	SpanRanges bool
	// Timeout bounds the time that a cluster may take to answer a request,
	// connecting and attempts at other members included, before the request
	// fails with a *ClusterError: 5 s if 0. It counts from when the request
	// waits for no other cluster. On an etcd cluster it bounds each call; the
	// requests of a session of a stoa cluster fail together, when nothing was
	// answered for nearly that time (a sixteenth less, at most). Requests to a
	// cluster whose members all refuse connections fail earlier.
	Timeout time.Duration
	// Pending bounds the asynchronous requests that are held back: 8,192 if 0.
	Pending int
	// ClientID is the name by which extensions of stoa clusters know the client: see
	// client.Config.
	ClientID string
	// DialTimeout bounds one attempt to reach one member: 2 s if 0.
	DialTimeout time.Duration
	// Logger logs lost clusters and sessions. Nil: nothing is logged.
	Logger *zap.Logger
}

// Cluster is one of the clusters: of stoa or of etcd.
type Cluster struct {
	// Endpoints are the voting members. A learner belongs in Near alone.
	Endpoints []string
	// Near are the members that serve this client, the preferred one first: they answer
	// local reads, and updates and syncs go through them. Behind them come those of
	// Endpoints. Empty: Endpoints, in their order.
	Near []string
	// Kind is the software of the members. The zero value is Auto: one is
	// asked.
	Kind Kind
	// TLS, if the endpoints need it.
	TLS *tls.Config
	// Username and Password, as etcd's client takes them.
	Username, Password string
	// DialOptions are given to gRPC, behind those of the package.
	DialOptions []grpc.DialOption
}

// Kind is the software of a cluster's members.
type Kind uint8

const (
	// Auto asks a member when the cluster is first used.
	Auto Kind = iota
	// Stoa clusters are accessed over a session: asynchronous requests are
	// pipelined.
	Stoa
	// Etcd clusters are accessed with a gRPC call per request: an asynchronous
	// update waits until those before it are answered.
	Etcd
)

// String is the kind's name: auto, stoa or etcd.
func (k Kind) String() string {
	switch k {
	case Auto:
		return "auto"
	case Stoa:
		return "stoa"
	case Etcd:
		return "etcd"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Route sends the keys that begin with a prefix to a cluster.
type Route struct {
	// Prefix of keys, byte by byte: "/eu" has "/europe" too, "/eu/" hasn't. Empty:
	// all keys.
	Prefix string
	// Cluster is a name in Config.Clusters.
	Cluster string
	// Strip takes the prefix from the keys on their way to the cluster, and puts it
	// before those in its answers and events. Keys that begin with /stoa/ there can't be
	// used (ErrReserved), as without Strip.
	Strip bool
	// Mirrors are clusters that have a copy of the keys, which workers keep up to date
	// (Client.Mirror, stoactl mirror). Cluster remains the keys' home: it orders and
	// serves their updates. Clients read at the copy in Config.Local.
	//
	// Within a mirrored prefix, longer ones can have routes of their own, to some of
	// the same clusters: their keys are mirrored less widely, or not at all. Keys that
	// begin with /stoa/ are never mirrored. Not together with Strip.
	Mirrors []string
	// Transactions makes transactions over several clusters possible, among keys whose
	// routes all have it. All clients that use the keys have to go through such a route:
	// others don't see which keys are locked. Each access checks that, in the same request;
	// it waits for the transaction that has a key. The keys can have no leases, and
	// no asynchronous requests. Not together with Mirrors.
	Transactions bool
}

const (
	defaultTimeout     = 5 * time.Second
	defaultDialTimeout = 2 * time.Second
	defaultPending     = 8192
)

// check refuses invalid settings. Zero stands for a default.
func (c Config) check() error {
	switch {
	case len(c.Clusters) == 0:
		return errors.New("compose: a composition needs clusters")
	case len(c.Routes) == 0:
		return errors.New("compose: a composition needs routes")
	case c.Timeout < 0:
		return fmt.Errorf("compose: a Timeout of %v", c.Timeout)
	case c.DialTimeout < 0:
		return fmt.Errorf("compose: a DialTimeout of %v", c.DialTimeout)
	case c.Pending < 0:
		return fmt.Errorf("compose: Pending of %d", c.Pending)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Clusters)) {
		if err := c.Clusters[name].check(); err != nil {
			return fmt.Errorf("compose: cluster %q: %w", name, err)
		}
	}
	return engine.CheckClientID(c.ClientID)
}

func (c Cluster) check() error {
	switch {
	case len(c.Endpoints) == 0:
		return errors.New("there are no endpoints")
	case slices.Contains(c.Endpoints, ""):
		return errors.New("an endpoint is empty")
	case slices.Contains(c.Near, ""):
		return errors.New("a member of Near is empty")
	case c.Kind > Etcd:
		return fmt.Errorf("%v is none of Auto, Stoa and Etcd", c.Kind)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.Pending == 0 {
		c.Pending = defaultPending
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}
