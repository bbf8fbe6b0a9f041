package client

import (
	"crypto/tls"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Config configures a client, and the defaults of its sessions, which
// SessionOptions override. Endpoints are needed; everything else has a default.
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
	// TTL is the time for which a session survives without contact to a member,
	// counted from its last answered request: whole seconds, 30 s if 0.
	TTL time.Duration
	// Level is that of reads and watches that don't ask for one. The zero value is
	// Strict.
	Level Level

	// Pending bounds the unanswered requests of a session: 8,192 if 0. Further
	// calls block.
	Pending int
	// MaxRequestBytes bounds one request of a session: just below 2 MiB if 0, which is
	// what a server with default settings can read at all. Larger ones fail with
	// ErrRequestTooLarge.
	MaxRequestBytes int

	// DialOptions are given to gRPC, behind those of the package.
	DialOptions []grpc.DialOption
	// Logger logs lost connections and sessions. Nil: nothing is logged.
	Logger *zap.Logger
}

func (c Config) engine() engine.Config {
	return engine.Config{
		Endpoints: c.Endpoints, TLS: c.TLS, Username: c.Username, Password: c.Password, DialTimeout: c.DialTimeout,
		ClientID: c.ClientID, TTL: c.TTL, Level: engine.Level(c.Level),
		Pending: c.Pending, MaxRequestBytes: c.MaxRequestBytes, DialOptions: c.DialOptions, Logger: c.Logger,
	}
}

// Level is the consistency level of a read or a watch.
type Level uint8

const (
	// Strict reads show all that was acknowledged to any client before they were sent:
	// they are linearizable over all keys. A strict watch is ordered, as a causal one.
	Strict Level = iota
	// Causal reads show all that this session has seen, its own writes
	// included, and the tokens given to See. The member that the session is
	// connected to answers them by itself. A causal watch is ordered: the
	// events of all ordered watches of a session come in the order of their
	// revisions, and before the answer to any later read that reflects them.
	Causal
	// Fast reads show the member's present state, possibly without the
	// session's own writes. A fast watch has events as soon as the member has
	// them, in order only among those of the same watch.
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

// Token is the highest revision that a session has seen. Another session that
// is given it (WithToken, Session.See) reflects that revision in its causal
// reads.
type Token int64
