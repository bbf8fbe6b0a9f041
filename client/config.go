package client

import (
	"crypto/tls"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Config is how to reach a cluster, and what its sessions are like unless a
// SessionOption says otherwise. Endpoints are needed; everything else has a default.
type Config struct {
	// Endpoints are the addresses of members, with or without http:// or https://.
	// One is enough to start with. A session goes to another of them when its member
	// fails.
	Endpoints []string
	// TLS, if the endpoints need it.
	TLS *tls.Config
	// Username and Password are exchanged for a token, as by etcd's client.
	Username, Password string
	// DialTimeout bounds one attempt to reach one endpoint: 5 s if 0.
	DialTimeout time.Duration

	// ClientID is the name by which the cluster's extensions know the client, in
	// calls, watches and sessions alike: up to 256 characters of printable ASCII.
	// Empty: "anonymous", as all clients without a name.
	ClientID string
	// TTL is how long a session outlives its last sign of life, which each answered
	// request is: whole seconds, 30 s if 0.
	TTL time.Duration
	// Level is that of reads and watches that don't ask for one. The zero value is
	// Strict.
	Level Level

	// Pending bounds the unanswered requests of a session: 8,192 if 0. Calls wait for
	// room beyond it.
	Pending int
	// MaxRequestBytes bounds one request of a session: just below 2 MiB if 0, which is
	// what a server with default settings can read at all. Larger ones fail with
	// ErrRequestTooLarge.
	MaxRequestBytes int

	// DialOptions are given to gRPC, behind those of the package.
	DialOptions []grpc.DialOption
	// Logger has lost connections and sessions. Nil: nothing is logged.
	Logger *zap.Logger
}

func (c Config) engine() engine.Config {
	return engine.Config{
		Endpoints: c.Endpoints, TLS: c.TLS, Username: c.Username, Password: c.Password, DialTimeout: c.DialTimeout,
		ClientID: c.ClientID, TTL: c.TTL, Level: engine.Level(c.Level),
		Pending: c.Pending, MaxRequestBytes: c.MaxRequestBytes, DialOptions: c.DialOptions, Logger: c.Logger,
	}
}

// Level is how much of what has happened a read, or a watch, must show.
type Level uint8

const (
	// Strict reads show all that was acknowledged to any client before they were sent:
	// they are linearizable over all keys. A strict watch is ordered, as a causal one.
	Strict Level = iota
	// Causal reads show all that this session has seen, its own writes included, and
	// what it was told of with See. The member that the session is connected to
	// answers them by itself. A causal watch is ordered: the events of all ordered
	// watches of a session come in the order of their revisions, and before the answer
	// to any later read that reflects them.
	Causal
	// Fast reads show what the member has at the moment, possibly without the
	// session's own writes. A fast watch has events as soon as the member has them, in
	// order only among those of the same watch.
	Fast
)

// String is the level's name: strict, causal or fast.
func (l Level) String() string {
	switch l {
	case Strict:
		return "strict"
	case Causal:
		return "causal"
	case Fast:
		return "fast"
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}

// Token is all that a session has seen: the highest revision of it. Another session
// that is given it (WithToken, Session.See) shows as much in its causal reads.
type Token int64
