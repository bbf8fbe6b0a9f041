package engine

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/experimental"

	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
)

// Config is client.Config, which documents the fields and their defaults.
type Config struct {
	Endpoints          []string
	TLS                *tls.Config
	Username, Password string
	DialTimeout        time.Duration

	ClientID string
	TTL      time.Duration
	Level    Level

	Pending         int
	MaxRequestBytes int

	DialOptions []grpc.DialOption
	Logger      *zap.Logger
}

const (
	defaultDialTimeout = 5 * time.Second
	defaultTTL         = 30 * time.Second
	defaultPending     = 8192
	// A server accepts 1.5 MiB for the request and 512 KiB for its envelope.
	defaultMaxRequest = 2<<20 - 64<<10
	// pendingBytes bounds the same as Config.Pending, in bytes; one request is
	// always allowed.
	pendingBytes = 16 << 20

	// Flow-control windows of a stream and of a connection.
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

// check refuses what makes no sense. Zero stands for a default.
func (c Config) check() error {
	switch {
	case c.DialTimeout < 0:
		return fmt.Errorf("client: a DialTimeout of %v", c.DialTimeout)
	case c.Pending < 0:
		return fmt.Errorf("client: Pending of %d", c.Pending)
	case c.MaxRequestBytes < 0:
		return fmt.Errorf("client: MaxRequestBytes of %d", c.MaxRequestBytes)
	}
	if c.TTL != 0 {
		if err := CheckTTL(c.TTL); err != nil {
			return err
		}
	}
	return errors.Join(c.Level.check(), CheckClientID(c.ClientID))
}

// CheckTTL refuses TTLs that a lease can't have.
func CheckTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl%time.Second != 0 {
		return fmt.Errorf("client: a TTL of %v: it is whole seconds, at least one", ttl)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Pending == 0 {
		c.Pending = defaultPending
	}
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = defaultMaxRequest
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// etcd is the configuration of the etcd client inside. Its connections back off
// for no more than a second: a session tries other members meanwhile, and must
// reconnect to a restarted one well within its ttl.
func (c Config) etcd() clientv3.Config {
	back := backoff.DefaultConfig
	back.BaseDelay, back.MaxDelay = 50*time.Millisecond, time.Second
	options := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: back, MinConnectTimeout: c.DialTimeout}),
		experimental.WithBufferPool(sessionwire.Pool),
		// Of fixed sizes, so that grpc-go doesn't ping the server with each answer to
		// estimate the connection.
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
	}
	options = append(options, grpc.WithChainUnaryInterceptor(refuseEphemeral))
	options = append(options, Identify(c.ClientID)...)
	return clientv3.Config{
		Endpoints:   c.Endpoints,
		TLS:         c.TLS,
		Username:    c.Username,
		Password:    c.Password,
		DialTimeout: c.DialTimeout,
		DialOptions: append(options, c.DialOptions...),
		Logger:      uncancelled(c.Logger.Named("etcd")),
	}
}

// Level is the consistency level of a read or a watch.
type Level uint8

const (
	// Strict: all that was acknowledged to any client before. Linearizable over
	// all keys. A watch: ordered, as Causal.
	Strict Level = iota
	// Causal: all that this session has seen, its own writes included, and the
	// tokens given to See. Served by the connected member by itself. A watch:
	// ordered; the events of all ordered watches of a session come in the order
	// of their revisions, and before the answer to any later read that reflects
	// them.
	Causal
	// Fast: the present state of the connected member, which may lack the
	// session's own writes. A watch: events as soon as the member has them, in
	// order only among those of the same watch.
	Fast
)

func (l Level) check() error {
	if l > Fast {
		return fmt.Errorf("client: Level(%d) is none of Strict, Causal and Fast", uint8(l))
	}
	return nil
}
