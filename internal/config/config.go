package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
)

// MaxPartitions bounds --partitions.
const MaxPartitions = 16

// DefaultPartitions is what --partitions=0 means. It is the same on every machine, so that
// servers that are started with the same command line fit together; docs/operations.md
// says why it is this number.
const DefaultPartitions = 4

// DefaultQuotaBytes is what --quota-backend-bytes=0 means.
const DefaultQuotaBytes = 2 << 30

// Config is a server's validated settings. The comments add to the flags' own
// descriptions (declare.go).
type Config struct {
	ShowVersion bool   // --version: nothing else was read
	File        string // where the settings came from, if from a file

	Name    string
	DataDir string
	WALDir  string // empty: inside DataDir

	ListenClientURLs     []url.URL
	ListenClientHTTPURLs []url.URL // if any, ListenClientURLs serve gRPC alone
	AdvertiseClientURLs  []url.URL
	ListenPeerURLs       []url.URL
	AdvertisePeerURLs    []url.URL
	ListenMetricsURLs    []url.URL

	// InitialCluster is the initial members by name. It matters only to a
	// server without data, and nil if the setting can't be parsed:
	// CheckBootstrap reports that.
	InitialCluster      types.URLsMap
	InitialClusterToken string
	NewCluster          bool // --initial-cluster-state is new
	ForceNewCluster     bool
	StrictReconfigCheck bool
	Balance             string // on or off
	MaxLearners         int

	// Partitions is never 0. A server that has data, or that joins a cluster that has
	// begun, takes the cluster's number instead.
	Partitions int
	// GRPCTransport is own or grpc-go.
	GRPCTransport string
	// MemoryLimit is in bytes; 0: that of the control group or the machine; < 0: none.
	MemoryLimit int64
	// ConvertEtcdData makes a data directory of etcd's one of stoa's.
	ConvertEtcdData bool

	HeartbeatInterval        time.Duration
	ElectionTimeout          time.Duration
	SnapshotCatchUpEntries   uint64
	DefragThresholdMegabytes uint

	QuotaBackendBytes           int64 // > 0, or 0 for no quota
	BackendBatchInterval        time.Duration
	AutoCompaction              AutoCompaction
	WatchProgressNotifyInterval time.Duration // 0: the default of the watch hub

	MaxTxnOps            uint
	MaxRequestBytes      uint
	MaxConcurrentStreams uint32
	KeepAlive            KeepAlive
	SocketOpts           transport.SocketOpts
	WarningApplyDuration time.Duration
	CorruptCheckTime     time.Duration // 0: never
	InitialCorruptCheck  bool          // the feature gate
	Features             []Feature     // sorted by name
	WarningUnaryDuration time.Duration

	ClientTLS     transport.TLSInfo
	PeerTLS       transport.TLSInfo
	ClientAutoTLS bool
	PeerAutoTLS   bool
	CertYears     uint // validity of the certificates that auto TLS makes

	AuthToken    string
	AuthTokenTTL uint // in seconds
	BcryptCost   uint

	HostWhitelist    []string // "*" allows all
	CORS             []string // "*" allows all
	EnablePprof      bool
	EnableGateway    bool // JSON over HTTP
	EnableUI         bool // the page for browsers, on the metrics port
	EnableReflection bool
	Metrics          string // basic or extensive

	Tracing Tracing

	Log      Log
	AuditLog string // a file; "": none
	// AuditRotation is of the audit log, as the server's; nil: none.
	AuditRotation *Rotation

	Notices []Notice

	given map[string]bool // by name: by flag, environment or file

	// As given; finish makes the fields above of them.
	initialCluster    string
	initialClusterErr error
	clusterState      string
	retention         string
	compactionMode    string
	tlsMin, tlsMax    string
	cipherSuites      []string
	featureGates      string
	rotate            bool
	rotation          string
	freelist          string
	discovery         discovery
	fallback          string
	logger            string
}

// AutoCompaction is off when both numbers are 0.
type AutoCompaction struct {
	Mode      string        // periodic or revision
	Period    time.Duration // periodic: how much history is kept
	Revisions int64         // revision: how many revisions are kept
}

// KeepAlive is the gRPC server's handling of silent or pinging clients.
type KeepAlive struct {
	MinTime, Interval, Timeout time.Duration
}

// Tracing configures the spans of requests.
type Tracing struct {
	Enable     bool
	Address    string // of an OTLP receiver
	Service    string
	Instance   string
	PerMillion int // of a million requests, those that are sampled
}

// Log configures the outputs and the form of log lines.
type Log struct {
	Level, Format string
	Outputs       []string
	Rotation      *Rotation // nil: none
}

// Rotation is of one file.
type Rotation struct {
	File       string `json:"-"`
	MaxSize    int    `json:"maxsize"` // MiB; 0: 100
	MaxAge     int    `json:"maxage"`  // days; 0: for ever
	MaxBackups int    `json:"maxbackups"`
	LocalTime  bool   `json:"localtime"`
	Compress   bool   `json:"compress"`
}

// Notice is something to be logged once there is a logger.
type Notice struct {
	Warn    bool
	Text    string
	Setting string
	Value   string
}

type discovery struct {
	endpoints       []string
	token, srv      string
	srvName         string
	user, password  string
	cert, key, ca   string
	dial, request   time.Duration
	keepAlive       time.Duration
	keepAliveLimit  time.Duration
	insecure, noTLS bool
}

// Given reports whether a setting was given, by flag, environment or file.
func (c *Config) Given(name string) bool { return c.given[name] }

// ErrHelp is returned for --help: print HelpText.
var ErrHelp = flag.ErrHelp

// UsageError is a command line that can't be read: etcd, and so stoa, exits
// with status 2 on it.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// Parse reads the settings of a server. args is the command line without the
// program's name, environ has the form of os.Environ.
func Parse(args, environ []string) (*Config, error) {
	d := declare()
	fs := d.flagSet()
	fs.SetOutput(io.Discard)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, ErrHelp
		}
		return nil, &UsageError{err}
	}
	if fs.NArg() > 0 {
		return nil, &UsageError{fmt.Errorf("%q is not a valid flag", fs.Arg(0))}
	}
	if d.cfg.ShowVersion {
		return d.cfg, nil
	}
	env := readEnvironment(environ)
	if d.file == "" {
		d.file = env.configFile()
	}
	if d.file != "" {
		// A fresh set: what flags have put into d must not shine through.
		fromFile := declare()
		if err := fromFile.readFile(d.file); err != nil {
			return nil, err
		}
		fs.Visit(func(f *flag.Flag) {
			if f.Name != "config-file" {
				fromFile.note(true, "the flag is ignored, since all settings are taken from the configuration file", f.Name, f.Value.String())
			}
		})
		return fromFile.finish()
	}
	if err := env.apply(d, fs); err != nil {
		return nil, err
	}
	fs.Visit(func(f *flag.Flag) { d.given[f.Name] = true })
	d.dropDefaultsThatWereReplaced()
	return d.finish()
}

// dropDefaultsThatWereReplaced follows etcd: an explicit listen URL requires an
// explicit advertised one.
func (d *declaration) dropDefaultsThatWereReplaced() {
	if d.given["listen-client-urls"] && !d.given["advertise-client-urls"] {
		d.cfg.AdvertiseClientURLs = nil
	}
	if d.cfg.discovery.wanted() && !d.given["initial-cluster"] {
		d.cfg.initialCluster = ""
	}
}

func (d *discovery) wanted() bool {
	return d.srv != "" || d.srvName != "" || len(d.endpoints) > 0
}
