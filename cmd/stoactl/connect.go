package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/srv"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// connection is a client that records why it gets no answers.
type connection struct {
	*clientv3.Client
	endpoints []string
	// failed is gRPC's error of the latest attempt to reach an endpoint; etcd's
	// client returns only that the deadline was exceeded.
	failed atomic.Pointer[error]
}

// connect opens a client for the given endpoints; none means --endpoints.
func (a *app) connect(endpoints ...string) (*connection, error) {
	if a.o.compose != "" {
		return nil, badArgs("--compose is for get, put, del, txn, watch and lease")
	}
	if err := a.checkForm(); err != nil {
		return nil, err
	}
	c := &connection{endpoints: endpoints}
	if len(endpoints) == 0 {
		c.endpoints = a.o.endpoints
	}
	cfg, err := a.clientConfig(c)
	if err != nil {
		return nil, err
	}
	if c.Client, err = clientv3.New(*cfg); err != nil {
		return nil, badConnection(c.explain(err))
	}
	return c, nil
}

func (a *app) clientConfig(c *connection) (*clientv3.Config, error) {
	spec := &clientv3.ConfigSpec{
		Endpoints: c.endpoints, DialTimeout: a.o.dial,
		KeepAliveTime: a.o.keepAlive, KeepAliveTimeout: a.o.keepAliveLimit,
		MaxCallSendMsgSize: a.o.maxSend, MaxCallRecvMsgSize: a.o.maxReceive,
		Secure: &clientv3.SecureConfig{
			Cert: a.o.cert, Key: a.o.key, Cacert: a.o.ca, ServerName: a.serverName(),
			InsecureTransport: a.o.plain, InsecureSkipVerify: a.o.skipVerify,
		},
	}
	var err error
	if spec.Auth, err = a.authConfig(); err != nil {
		return nil, err
	}
	lg := a.logger()
	cfg, err := clientv3.NewClientConfig(spec, lg)
	if err != nil {
		return nil, badArgs("%w", err)
	}
	cfg.Logger = lg
	caller, err := a.callerOptions()
	cfg.DialOptions = append(caller, c.observe()...)
	return cfg, err
}

func (a *app) authConfig() (*clientv3.AuthConfig, error) {
	if a.o.token != "" {
		return &clientv3.AuthConfig{Token: a.o.token}, nil
	}
	if a.o.user == "" {
		return nil, nil
	}
	name, password, ok := strings.Cut(a.o.user, ":")
	if a.o.password != "" {
		name, password, ok = a.o.user, a.o.password, true
	}
	if !ok {
		return nil, badArgs("--user %s has no password: give --user %s:PASSWORD, or --password", name, name)
	}
	return &clientv3.AuthConfig{Username: name, Password: password}, nil
}

// serverName is what the servers' certificates have to be for, "" if it is the name that is connected to: whoever
// answers for DNS can make that the name of a server of its own.
func (a *app) serverName() string {
	if a.o.insecureDiscovery {
		return ""
	}
	return a.o.discovery
}

// discover takes the endpoints from DNS, if that is asked for.
func (a *app) discover() error {
	trim(a.o.endpoints)
	if a.o.discovery == "" {
		return nil
	}
	found, err := srv.GetClient("etcd-client", a.o.discovery, a.o.discoveryName)
	if err != nil {
		return fmt.Errorf("querying SRV records of %s: %w", a.o.discovery, err)
	}
	var eps []string
	for _, ep := range found.Endpoints {
		if strings.HasPrefix(ep, "http://") && !a.o.insecureDiscovery {
			fmt.Fprintf(a.errs, "ignoring discovered insecure endpoint %q\n", ep)
			continue
		}
		eps = append(eps, ep)
	}
	if len(eps) > 0 {
		a.o.endpoints = eps
	}
	return nil
}

// trim takes off spaces around endpoints.
func trim(endpoints []string) {
	for i, ep := range endpoints {
		endpoints[i] = strings.TrimSpace(ep)
	}
}

func (a *app) logger() *zap.Logger {
	if !a.o.debug {
		return zap.NewNop()
	}
	lg, _ := zap.NewDevelopment()
	return lg
}

// observe records why attempts fail. It is inside of etcd's own interceptors,
// which try again.
func (c *connection) observe() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, do grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := do(ctx, method, req, reply, cc, opts...)
			c.note(err)
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, do grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := do(ctx, d, cc, method, opts...)
			c.note(err)
			return s, err
		}),
	}
}

func (c *connection) note(err error) {
	if isUnreachable(err) {
		c.failed.Store(&err)
	}
}

// ready reports whether there is a connection within some time.
func (c *connection) ready(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(c.Ctx(), within)
	defer cancel()
	conn := c.ActiveConnection()
	for {
		conn.Connect()
		state := conn.GetState()
		if state == connectivity.Ready || state == connectivity.Shutdown {
			return true
		}
		if !conn.WaitForStateChange(ctx, state) {
			return c.Ctx().Err() != nil // the command has ended meanwhile
		}
	}
}

// isUnreachable reports errors that no server has sent: a server's begin with
// its name.
func isUnreachable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		text := status.Convert(err).Message()
		return !strings.HasPrefix(text, "etcdserver: ") && !strings.HasPrefix(text, "stoa: ")
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// explain adds the endpoint and the reason to an error that has only the
// missing answer.
func (c *connection) explain(err error) error {
	var known *unanswered
	if !isUnreachable(err) || errors.As(err, &known) {
		return err
	}
	why := err.Error()
	if last := c.failed.Load(); last != nil && reason(*last) != "" {
		why = reason(*last)
		if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
			why += ": " + context.DeadlineExceeded.Error() // the text of etcdctl, for which scripts look
		}
	}
	return &unanswered{fmt.Sprintf("no answer from %s: %s", strings.Join(c.endpoints, ", "), why), err}
}

// unanswered is an error with a more detailed text.
type unanswered struct {
	text string
	err  error
}

func (e *unanswered) Error() string { return e.text }
func (e *unanswered) Unwrap() error { return e.err }

// reason is the cause in gRPC's text for a failed connection; "" if the text
// has another form.
func reason(err error) string {
	_, text, _ := strings.Cut(status.Convert(err).Message(), "desc = ")
	text = strings.TrimPrefix(strings.Trim(text, `"`), "transport: ")
	return strings.TrimPrefix(text, "Error while dialing: ")
}

// withClient runs f with a connection and the time that a command may take.
func (a *app) withClient(f func(context.Context, *clientv3.Client) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command)
	defer cancel()
	return c.explain(f(ctx, c.Client))
}

var forms = []string{"fields", "json", "protobuf", "simple", "table"}

// checkForm refuses a form of output before anything is done.
func (a *app) checkForm() error {
	if !slices.Contains(forms, a.o.form) {
		return badFeature("unsupported output format %q: there are %s", a.o.form, strings.Join(forms, ", "))
	}
	return nil
}
