package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/client"
)

// Upstream configures the way to the cluster.
type Upstream struct {
	Endpoints []string
	TLS       *tls.Config // nil: none
	// Username and Password are the sidecar's user; no user if Username is empty.
	Username, Password string
	DialTimeout        time.Duration
	// KeepAliveTime is how long a connection is silent before the member is asked for a
	// sign of life; the connection ends after KeepAliveTimeout without one.
	KeepAliveTime, KeepAliveTimeout time.Duration
	// DialOptions are added to those of each connection.
	DialOptions []grpc.DialOption
}

// signInPause is the time between two attempts to authenticate the sidecar's user.
const signInPause = time.Second

// upstream is the connections to the cluster.
type upstream struct {
	o  Upstream
	lg *zap.Logger
	// plain has no credentials but the certificate: calls bring their own.
	plain *clientv3.Client

	cancel context.CancelFunc
	// authenticated is closed once own is there.
	authenticated chan struct{}

	mu     sync.Mutex
	own    *client.Client // with the sidecar's user; nil until that is authenticated
	reason error          // for which own is nil
}

// connect returns before there is a connection.
func connect(o Upstream, lg *zap.Logger) (*upstream, error) {
	u := &upstream{o: o, lg: lg, authenticated: make(chan struct{}), reason: errors.New("authentication is in progress")}
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	own := client.Config{
		Endpoints: o.Endpoints, TLS: o.TLS, DialTimeout: o.DialTimeout, DialOptions: u.dialOptions(),
		// etcd's client warns of each call that fails, be it a local client's mistake.
		Logger: lg.Named("client").WithOptions(zap.IncreaseLevel(zap.ErrorLevel)),
	}
	anonymous, err := client.New(own)
	if err != nil {
		return nil, fmt.Errorf("connecting to %v: %w", o.Endpoints, err)
	}
	u.plain = anonymous.Client
	if o.Username == "" {
		u.own = anonymous
		close(u.authenticated)
		return u, nil
	}
	own.Username, own.Password = o.Username, o.Password
	go u.signIn(ctx, own)
	return u, nil
}

func (u *upstream) dialOptions() []grpc.DialOption {
	return append([]grpc.DialOption{grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time: u.o.KeepAliveTime, Timeout: u.o.KeepAliveTimeout,
	})}, u.o.DialOptions...)
}

// signIn tries until the sidecar's user is authenticated. An attempt can't be cancelled: close
// doesn't wait for it.
func (u *upstream) signIn(ctx context.Context, c client.Config) {
	for {
		own, err := client.New(c)
		switch {
		case !u.signedIn(ctx, own, err):
			if err == nil {
				_ = own.Close()
			}
			return
		case err == nil:
			u.lg.Info("authenticated the sidecar's user", zap.String("user-name", c.Username))
			return
		}
		u.lg.Warn("failed to authenticate the sidecar's user", zap.String("user-name", c.Username), zap.Error(err))
		if !rest(ctx, signInPause) {
			return
		}
	}
}

// ready waits until the sidecar's user is authenticated; it returns false if ctx ends first. Until then signIn logs.
func (u *upstream) ready(ctx context.Context) bool {
	select {
	case <-u.authenticated:
		return true
	case <-ctx.Done():
		return false
	}
}

// rest waits before another attempt; it returns false if ctx ends first.
func rest(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// signedIn takes the result of an attempt, unless ctx has ended.
func (u *upstream) signedIn(ctx context.Context, own *client.Client, err error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	if u.own, u.reason = own, err; err == nil {
		close(u.authenticated)
	}
	return true
}

// user is the client with the sidecar's user.
func (u *upstream) user() (*client.Client, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.own == nil {
		return nil, status.Errorf(codes.Unavailable, "stoa sidecar: the user %q is not authenticated yet: %v", u.o.Username, u.reason)
	}
	return u.own, nil
}

// conn is the connection for a call.
func (u *upstream) conn(token bool) (*grpc.ClientConn, error) {
	if token {
		return u.plain.ActiveConnection(), nil
	}
	own, err := u.user()
	if err != nil {
		return nil, err
	}
	return own.ActiveConnection(), nil
}

// reachable reports whether there is a connection to a member.
func (u *upstream) reachable() bool {
	conn, err := u.conn(false)
	return err == nil && conn.GetState() == connectivity.Ready
}

// identified reports whether the cluster may know the sidecar as a user.
func (u *upstream) identified() bool {
	return u.o.Username != "" || u.o.TLS != nil && (len(u.o.TLS.Certificates) > 0 || u.o.TLS.GetClientCertificate != nil)
}

func (u *upstream) close() {
	u.mu.Lock()
	u.cancel()
	u.mu.Unlock()
	if own, err := u.user(); err == nil {
		_ = own.Close()
	}
	_ = u.plain.Close()
}
