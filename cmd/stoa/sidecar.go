package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/client/compose/file"
	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/sidecar"
	"github.com/stoa-kv/stoa/internal/sidecar/composed"
	"github.com/stoa-kv/stoa/internal/sidecar/front"
	"github.com/stoa-kv/stoa/internal/version"
)

// sidecarConfig is the settings of `stoa sidecar`.
type sidecarConfig struct {
	sidecar         sidecar.Config
	compose         string // the file of a composition, in place of a cluster
	mirrors         string // whose executors it runs, and
	commands        string // those of queues
	clients         int    // of a composition
	listen, metrics []url.URL
	drain           time.Duration
	log             config.Log
	open            bool // the ports may be on any address
	notes           []string
}

const sidecarUsage = `Usage: stoa sidecar [flags]

Serves etcd's client API beside an application, and forwards it to a cluster.
docs/sidecar.md explains it. Each flag can be set by the environment, too:
--drain-timeout is STOA_SIDECAR_DRAIN_TIMEOUT.

Flags:
`

// sidecarMain is `stoa sidecar`. It returns the exit code of the process.
func sidecarMain(args, env []string) int {
	cfg, err := parseSidecar(args, env, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "stoa sidecar: %v\nRun 'stoa sidecar --help' for usage.\n", err)
		return 2
	}
	lg, err := newLogger(cfg.log)
	if err != nil {
		defaultLogger().Error("failed to open the log", zap.Error(err))
		return 1
	}
	defer func() { _ = lg.Sync() }()
	if err := runSidecar(cfg, lg); err != nil {
		lg.Error("stoa sidecar failed", zap.Error(err))
		return 1
	}
	return 0
}

func runSidecar(cfg *sidecarConfig, lg *zap.Logger) error {
	signals, forget := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer forget()
	behind := []zap.Field{zap.String("composition", cfg.compose)}
	if cfg.compose == "" {
		behind = []zap.Field{zap.Strings("endpoints", cfg.sidecar.Upstream.Endpoints), zap.String("user-name", cfg.sidecar.Upstream.Username)}
	}
	lg.Info("starting stoa sidecar", append(behind, zap.String("stoa-version", version.Stoa), zap.String("git-sha", version.Commit()))...)
	for _, n := range cfg.notes {
		lg.Warn(n)
	}
	clients, err := serve.Listen("listen-client-urls", cfg.listen, transport.SocketOpts{})
	if err != nil {
		return err
	}
	meters, err := serve.Listen("listen-metrics-urls", cfg.metrics, transport.SocketOpts{})
	if err != nil {
		serve.CloseAll(clients)
		return err
	}
	s, err := cfg.server(lg)
	if err != nil {
		serve.CloseAll(append(clients, meters...))
		return err
	}
	err = s.Serve(clients, meters)
	if err == nil {
		lg.Info("ready to serve client requests")
		for _, p := range clients {
			lg.Info("serving client traffic", zap.Stringer("address", p.Addr()), zap.String("url", p.URL.String()))
		}
		notifySystemd(lg, "READY=1")
		select {
		case <-signals.Done():
		case err = <-s.Err():
		}
	}
	forget() // a second signal ends the process at once
	lg.Info("stopping")
	notifySystemd(lg, "STOPPING=1")
	ctx, cancel := context.WithTimeout(context.Background(), cfg.drain)
	defer cancel()
	s.Stop(ctx)
	lg.Info("stopped")
	return err
}

// sidecarServer serves local clients: package sidecar, or composed.
type sidecarServer interface {
	Serve(clients, meters []*serve.Port) error
	Err() <-chan error
	Stop(context.Context)
}

func (c *sidecarConfig) server(lg *zap.Logger) (sidecarServer, error) {
	if c.compose == "" {
		c.sidecar.Logger, c.sidecar.LogAway = lg, true
		return sidecar.New(c.sidecar)
	}
	composition, err := file.Read(c.compose, lg)
	if err != nil {
		return nil, err
	}
	composition.DialTimeout = c.sidecar.Upstream.DialTimeout
	return composed.New(composition, c.executors(composition), composed.Limits{MaxConcurrentStreams: c.sidecar.MaxConcurrentStreams, MaxClients: c.clients, Calls: c.sidecar.Limits}, lg)
}

// executors are what the flags ask for.
func (c *sidecarConfig) executors(of compose.Config) (e composed.Executors) {
	names := func(list string) []string {
		if list == "*" {
			return slices.Sorted(maps.Keys(of.Clusters))
		}
		return strings.Split(list, ",")
	}
	if c.mirrors != "" {
		e.Mirrors = names(c.mirrors)
	}
	if c.commands != "" {
		for set := range strings.SplitSeq(c.commands, ";") {
			e.Commands = append(e.Commands, names(set))
		}
	}
	return e
}

// sidecarFlags are the flags as they are given.
type sidecarFlags struct {
	endpoints, listen, metrics, user, password  string
	cacert, cert, key                           string
	insecureSkipVerify, anyAddress, showVersion bool
	batching, coalescing, sharedKeepAlives      bool
	namespace, transport, compose, away         string
	mirrors, commands                           string
	drain, dial, keepAlive, keepAliveTimeout    time.Duration
	maxStreams, maxWatches, maxClients          uint
	maxRequests, maxBytes                       uint64
	cache                                       prefixes
	cacheMemory                                 uint64
	logLevel, logFormat, logOutputs             string
}

func (f *sidecarFlags) declare(help io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("stoa sidecar", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {
		fmt.Fprint(help, sidecarUsage)
		fs.VisitAll(func(o *flag.Flag) {
			fmt.Fprintf(help, "  --%s %q\n        %s\n", o.Name, o.DefValue, o.Usage)
		})
	}
	fs.StringVar(&f.endpoints, "endpoints", "127.0.0.1:2379", "Comma-separated endpoints of the cluster.")
	fs.StringVar(&f.compose, "compose", "", "File of a composition of several clusters (docs/composition.md), in place of --endpoints.")
	fs.StringVar(&f.mirrors, "run-mirrors", "", "Clusters of --compose, comma-separated, whose mirrors this sidecar keeps up to date, too; *: all.")
	fs.StringVar(&f.commands, "run-commands", "", "Queues of --compose, by the clusters of each, as eu,us;eu,asia, whose commands this sidecar carries out, too; *: that of all clusters.")
	fs.StringVar(&f.listen, "listen-client-urls", "http://127.0.0.1:23790", "Comma-separated URLs to serve local clients on: http:// with a loopback address, or unix://.")
	fs.StringVar(&f.metrics, "listen-metrics-urls", "", "Comma-separated URLs for /metrics, /health, /livez and /readyz, in addition to those of clients.")
	fs.BoolVar(&f.anyAddress, "insecure-listen", false, "Serve local clients on addresses that are not loopback ones: every host that can connect has the rights of --user.")
	fs.StringVar(&f.user, "user", "", "User of calls that bring no token: username[:password].")
	fs.StringVar(&f.password, "password", "", "Password of --user, all of which is the name then; better in the environment.")
	fs.StringVar(&f.cacert, "cacert", "", "Certificates of the authorities (PEM) that the cluster's certificates are verified with.")
	fs.StringVar(&f.cert, "cert", "", "Client certificate (PEM) for the cluster.")
	fs.StringVar(&f.key, "key", "", "Key (PEM) of --cert.")
	fs.BoolVar(&f.insecureSkipVerify, "insecure-skip-tls-verify", false, "Don't verify the cluster's certificates; for tests only.")
	fs.DurationVar(&f.dial, "dial-timeout", 5*time.Second, "Time for one attempt to connect to a member.")
	fs.DurationVar(&f.keepAlive, "keepalive-time", 10*time.Second, "Silence after which a member is asked for a sign of life.")
	fs.DurationVar(&f.keepAliveTimeout, "keepalive-timeout", 6*time.Second, "Time for that sign; then the connection ends.")
	fs.DurationVar(&f.drain, "drain-timeout", 5*time.Second, "Time for calls in progress to end after SIGTERM.")
	fs.BoolVar(&f.batching, "batching", true, "Send puts, gets and other requests of single keys in batches, over sessions, which are leases of the cluster. false: each as a call of its own.")
	fs.BoolVar(&f.coalescing, "coalesce-watches", true, "Have watches of the same keys follow one watch of the sidecar's. false: each as a watch of its own.")
	fs.BoolVar(&f.sharedKeepAlives, "coalesce-keepalives", true, "Have keep-alives of leases of all local connections share few streams to members. false: each stream is one of its own.")
	fs.StringVar(&f.namespace, "namespace", "", "Prefix of the keys that local clients see, without it. Clients of stoa's that open sessions need one without.")
	fs.StringVar(&f.away, "when-away", "fail", "What calls do while no member can be reached: fail, or wait, until their deadline.")
	fs.Var(&f.cache, "cache", "Comma-separated prefixes of keys, of the cluster's, to keep in memory and to answer reads of; may be given several times.")
	fs.Uint64Var(&f.cacheMemory, "cache-memory", 64<<20, "Memory for the keys of --cache, in bytes. Reads of a prefix that doesn't fit are forwarded.")
	fs.StringVar(&f.transport, "grpc-transport", "grpc-go", "What serves connections of local clients: grpc-go, or stoa's own (experimental), which needs less CPU.")
	fs.UintVar(&f.maxStreams, "max-concurrent-streams", 0, "Calls in progress of one local connection; 0: no limit.")
	fs.Uint64Var(&f.maxRequests, "max-requests", 0, "Requests in progress of one local connection, without watches and other streams; 0: no limit. More are refused.")
	fs.Uint64Var(&f.maxBytes, "max-bytes", 0, "Bytes of the requests in progress of one local connection; 0: no limit. More are refused.")
	fs.UintVar(&f.maxClients, "max-clients", 1000, "With --compose: local connections, each with sessions of its own in the clusters; 0: no limit. More are refused.")
	fs.UintVar(&f.maxWatches, "max-watches-per-stream", 100_000, "Watches of one stream of a local client; 0: no limit. More are refused.")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error.")
	fs.StringVar(&f.logFormat, "log-format", "json", "json or console.")
	fs.StringVar(&f.logOutputs, "log-outputs", "default", "Comma-separated: default (stderr), stdout, stderr, systemd/journal or files.")
	fs.BoolVar(&f.showVersion, "version", false, "Print the version and exit.")
	return fs
}

const sidecarEnv = "STOA_SIDECAR_"

func parseSidecar(args, env []string, help io.Writer) (*sidecarConfig, error) {
	var f sidecarFlags
	fs := f.declare(help)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag", fs.Arg(0))
	}
	unknown, err := fromEnvironment(fs, env)
	if err != nil {
		return nil, err
	}
	if f.showVersion {
		version.Print(help, "stoa sidecar")
		return nil, flag.ErrHelp
	}
	if err := f.checkCompose(fs); err != nil {
		return nil, err
	}
	c, err := f.config()
	if err != nil {
		return nil, err
	}
	for _, name := range unknown {
		c.notes = append(c.notes, name+" is in the environment, but there is no such flag")
	}
	return c, nil
}

// checkCompose refuses flags that a composition's file has settings for, or that have no effect on one.
func (f *sidecarFlags) checkCompose(fs *flag.FlagSet) (err error) {
	if f.compose == "" {
		if f.mirrors != "" || f.commands != "" {
			return errors.New("--run-mirrors and --run-commands need --compose: they are for several clusters")
		}
		fs.Visit(func(o *flag.Flag) {
			if o.Name == "max-clients" {
				err = errors.New("--max-clients is for --compose")
			}
		})
		return err
	}
	fs.Visit(func(o *flag.Flag) {
		switch o.Name {
		case "endpoints", "user", "password", "cacert", "cert", "key", "insecure-skip-tls-verify":
			err = fmt.Errorf("--%s and --compose: the file of the composition says it for each cluster", o.Name)
		case "namespace", "batching", "coalesce-watches", "coalesce-keepalives", "cache", "cache-memory", "when-away", "max-watches-per-stream", "grpc-transport", "keepalive-time", "keepalive-timeout":
			err = fmt.Errorf("--%s has no effect with --compose", o.Name)
		}
	})
	return err
}

// fromEnvironment sets the flags that aren't given. A variable that is no flag can't be
// refused: Kubernetes gives STOA_SIDECAR_PORT to all containers beside a service of that name.
func fromEnvironment(fs *flag.FlagSet, env []string) (unknown []string, err error) {
	given := map[string]bool{}
	fs.Visit(func(o *flag.Flag) { given[o.Name] = true })
	for _, e := range env {
		rest, ok := strings.CutPrefix(e, sidecarEnv)
		if !ok {
			continue
		}
		name, value, _ := strings.Cut(rest, "=")
		variable := sidecarEnv + name
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		switch {
		case fs.Lookup(name) == nil:
			unknown = append(unknown, variable)
		case !given[name]:
			if err := fs.Set(name, value); err != nil {
				return nil, fmt.Errorf("%s in the environment: %w", variable, err)
			}
		}
	}
	return unknown, nil
}

func (f *sidecarFlags) config() (*sidecarConfig, error) {
	c := &sidecarConfig{compose: f.compose, mirrors: f.mirrors, commands: f.commands, drain: f.drain, open: f.anyAddress, log: config.Log{Level: f.logLevel, Format: f.logFormat, Outputs: split(f.logOutputs)}}
	up := &c.sidecar.Upstream
	up.Endpoints = split(f.endpoints)
	up.DialTimeout, up.KeepAliveTime, up.KeepAliveTimeout = f.dial, f.keepAlive, f.keepAliveTimeout
	up.Username, up.Password = f.user, f.password
	if f.password == "" { // as in etcdctl: with --password, all of --user is the name
		up.Username, up.Password, _ = strings.Cut(f.user, ":")
	}
	c.sidecar.Namespace = f.namespace
	c.sidecar.MaxConcurrentStreams = uint32(min(f.maxStreams, 1<<32-1))
	c.sidecar.Unbatched, c.sidecar.Uncoalesced, c.sidecar.OwnTransport = !f.batching, !f.coalescing, f.transport == "own"
	c.sidecar.Limits = front.Limits{Requests: int64(min(f.maxRequests, math.MaxInt64)), Bytes: int64(min(f.maxBytes, math.MaxInt64))}
	c.clients = int(min(f.maxClients, math.MaxInt32))
	c.sidecar.MaxWatches = int(min(f.maxWatches, math.MaxInt32))
	c.sidecar.Cache, c.sidecar.CacheMemory = f.cache, int64(min(f.cacheMemory, math.MaxInt64))
	c.sidecar.WaitWhenAway = f.away == "wait"
	c.sidecar.UncoalescedKeepAlives = !f.sharedKeepAlives
	switch {
	case len(up.Endpoints) == 0 || slices.Contains(up.Endpoints, ""):
		return nil, fmt.Errorf("--endpoints %q: there is no address in it, or an empty one", f.endpoints)
	case up.Username == "" && up.Password != "":
		return nil, errors.New("--password is given, but no --user")
	case up.Username != "" && up.Password == "":
		return nil, errors.New("--user is given, but no password: --user name:password, or --password")
	case len(f.cache) > 0 && !f.coalescing:
		return nil, errors.New("--cache has no effect with --coalesce-watches=false: it needs a watch that others may follow, too")
	case f.away != "fail" && f.away != "wait":
		return nil, fmt.Errorf("--when-away %q: it is fail or wait", f.away)
	case f.transport != "grpc-go" && f.transport != "own":
		return nil, fmt.Errorf("--grpc-transport %q: it is grpc-go or own", f.transport)
	case f.logFormat != "json" && f.logFormat != "console":
		return nil, fmt.Errorf("--log-format %q: it is json or console", f.logFormat)
	}
	for flag, d := range map[string]time.Duration{"dial-timeout": f.dial, "keepalive-time": f.keepAlive, "keepalive-timeout": f.keepAliveTimeout, "drain-timeout": f.drain} {
		if d <= 0 {
			return nil, fmt.Errorf("--%s %v: it must be longer than 0", flag, d)
		}
	}
	var err error
	if up.TLS, err = f.tls(up.Endpoints); err != nil {
		return nil, err
	}
	if c.listen, err = c.urls("listen-client-urls", f.listen); err != nil {
		return nil, err
	}
	if len(c.listen) == 0 {
		return nil, errors.New("--listen-client-urls is empty")
	}
	c.metrics, err = c.urls("listen-metrics-urls", f.metrics)
	return c, err
}

// tls is for connections to the cluster; nil if no endpoint and no flag asks for it.
func (f *sidecarFlags) tls(endpoints []string) (*tls.Config, error) {
	secure := 0
	for _, e := range endpoints {
		if strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://") {
			secure++
		}
	}
	given := f.cacert != "" || f.cert != "" || f.key != "" || f.insecureSkipVerify
	plain := slices.ContainsFunc(endpoints, func(e string) bool {
		return strings.HasPrefix(e, "http://") || strings.HasPrefix(e, "unix://")
	})
	switch {
	case (f.cert == "") != (f.key == ""):
		return nil, errors.New("--cert and --key belong together")
	case secure > 0 && plain:
		return nil, errors.New("--endpoints: either all of them are https:// or none")
	case given && plain:
		return nil, errors.New("--cacert, --cert, --key and --insecure-skip-tls-verify need endpoints with https://")
	case !given && secure == 0:
		return nil, nil
	}
	info := transport.TLSInfo{TrustedCAFile: f.cacert, CertFile: f.cert, KeyFile: f.key, InsecureSkipVerify: f.insecureSkipVerify}
	conf, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("TLS for the cluster: %w", err)
	}
	return conf, nil
}

// urls reads a list of addresses to listen on.
func (c *sidecarConfig) urls(flag, list string) ([]url.URL, error) {
	var all []url.URL
	for _, s := range split(list) {
		u, err := url.Parse(s)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--%s: %w", flag, err)
		case u.Scheme == "unix" && u.Host+u.Path != "":
		case u.Scheme != "http":
			return nil, fmt.Errorf("--%s %s: it begins with http:// or unix:// (TLS is for the way to the cluster)", flag, s)
		case u.Port() == "" || u.Path != "":
			return nil, fmt.Errorf("--%s %s: it is http://ADDRESS:PORT", flag, s)
		case !loopback(u.Hostname()) && flag == "listen-client-urls" && !c.open:
			return nil, fmt.Errorf("--%s %s: every host that can connect to it would have the sidecar's rights; use a loopback address or a Unix socket, or --insecure-listen if that is meant", flag, s)
		case !loopback(u.Hostname()) && flag == "listen-client-urls":
			c.notes = append(c.notes, fmt.Sprintf("--%s %s: every host that can connect to it has the sidecar's rights", flag, s))
		}
		all = append(all, *u)
	}
	return all, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// prefixes is the value of --cache.
type prefixes []string

func (p *prefixes) String() string { return strings.Join(*p, ",") }

// Set implements flag.Value.
func (p *prefixes) Set(list string) error {
	for _, s := range strings.Split(list, ",") {
		if s == "" {
			return errors.New("an empty prefix")
		}
		*p = append(*p, s)
	}
	return nil
}
