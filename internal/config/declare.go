package config

import (
	"flag"
	"math"
	"net/url"
	"time"
)

// A declaration is every setting there is, bound to one Config that starts
// with the defaults.
type declaration struct {
	cfg      *Config
	file     string // --config-file
	settings []*setting
	given    map[string]bool // by flag, environment or file
	group    string          // of the settings that are being declared
	section  string          // in the file, likewise
}

func declare() *declaration {
	d := &declaration{cfg: &Config{}, given: map[string]bool{}}
	d.member()
	d.stoa()
	d.limits()
	d.clustering()
	d.security()
	d.clientTLS()
	d.peerTLS()
	d.logging()
	d.tracing()
	d.upkeep()
	d.acceptedOnly()
	return d
}

func (d *declaration) add(name string, v value, usage string) *setting {
	s := &setting{name: name, group: d.group, section: d.section, key: name, usage: usage, value: v}
	d.settings = append(d.settings, s)
	return s
}

// in sets the key that the file uses, where it isn't the flag's name.
func (s *setting) in(key string) *setting { s.key = key; return s }

// flagOnly marks a setting that etcd's file has no key for.
func (s *setting) flagOnly() *setting { s.key = ""; return s }

// noEffect marks a setting that the server ignores. missing names the missing
// feature, except for the values with which nothing is missing; none given: the
// default.
func (s *setting) noEffect(missing string, harmless ...string) *setting {
	if len(harmless) == 0 {
		harmless = []string{s.value.String()}
	}
	s.unused, s.missing, s.harmless = true, missing, harmless
	return s
}

func (d *declaration) text(name string, p *string, def, usage string) *setting {
	*p = def
	return d.add(name, text{p}, usage)
}

func (d *declaration) bool(name string, p *bool, def bool, usage string) *setting {
	*p = def
	return d.add(name, boolean{p}, usage)
}

func num[T uint | uint32 | uint64 | int | int64](d *declaration, name string, p *T, def T, usage string) *setting {
	*p = def
	return d.add(name, number[T]{p}, usage)
}

func (d *declaration) duration(name string, p *time.Duration, def time.Duration, usage string) *setting {
	*p = def
	return d.add(name, duration{p}, usage)
}

func (d *declaration) urls(name string, p *[]url.URL, def, usage string) *setting {
	v := urls{p}
	if err := v.Set(def); err != nil {
		panic("config: default of --" + name + ": " + err.Error())
	}
	return d.add(name, v, usage)
}

func (d *declaration) set(name string, p *[]string, def, usage string) *setting {
	if def != "" {
		*p = []string{def}
	}
	return d.add(name, set{p}, usage)
}

func (d *declaration) list(name string, p *[]string, usage string) *setting {
	return d.add(name, list{p}, usage)
}

func (d *declaration) choice(name string, p *string, usage string, valid ...string) *setting {
	*p = valid[0]
	return d.add(name, choice{p, valid}, usage)
}

// flagSet puts the settings behind Go's flag parser, which is etcd's too: it is
// what makes -f v, --f v and --f=v the same.
func (d *declaration) flagSet() *flag.FlagSet {
	fs := flag.NewFlagSet("stoa", flag.ContinueOnError)
	fs.StringVar(&d.file, "config-file", "", "")
	fs.BoolVar(&d.cfg.ShowVersion, "version", false, "")
	for _, s := range d.settings {
		fs.Var(s.value, s.name, s.usage)
	}
	return fs
}

func (d *declaration) member() {
	c := d.cfg
	d.group = "Member"
	d.text("name", &c.Name, defaultName, "Human-readable name for this member.")
	d.text("data-dir", &c.DataDir, "", "Path to the data directory (${name}.stoa if empty).")
	d.text("wal-dir", &c.WALDir, "", "Path to a directory for the log alone.")
	d.urls("listen-client-urls", &c.ListenClientURLs, defaultClientURL, "List of URLs to listen on for client traffic.")
	d.urls("listen-client-http-urls", &c.ListenClientHTTPURLs, "", "List of URLs to listen on for HTTP alone; removes HTTP from --listen-client-urls.")
	d.urls("listen-peer-urls", &c.ListenPeerURLs, defaultPeerURL, "List of URLs to listen on for peer traffic.")
	d.urls("listen-metrics-urls", &c.ListenMetricsURLs, "", "List of URLs to listen on for the metrics and health endpoints.")
	num(d, "snapshot-count", new(uint64), 10000, "Number of log entries that a server keeps applying before it considers to cut its log.").noEffect("the log is cut as soon as the state file holds it")
	num(d, "snapshot-catchup-entries", &c.SnapshotCatchUpEntries, 5000, "Number of log entries kept for followers that lag.")
	c.HeartbeatInterval, c.ElectionTimeout = 100*time.Millisecond, time.Second
	d.add("heartbeat-interval", milliseconds{&c.HeartbeatInterval}, "Time (in milliseconds) of a heartbeat interval.")
	d.add("election-timeout", milliseconds{&c.ElectionTimeout}, "Time (in milliseconds) for an election to time out.")
	d.bool("initial-election-tick-advance", new(bool), true, "Whether to fast-forward initial election ticks on boot for faster election.").noEffect("election ticks are not fast-forwarded; a server that is alone needs no election timeout", "false")
	d.bool("pre-vote", new(bool), true, "Enable the Raft pre-vote phase.").noEffect("the pre-vote phase is always on")
	d.bool("enable-grpc-gateway", &c.EnableGateway, true, "Serve the API as JSON over HTTP, at the client URL + /v3/.")
	d.bool("socket-reuse-port", &c.SocketOpts.ReusePort, false, "Set SO_REUSEPORT on listeners.").in("reuse-port").section = "socket-options"
	d.bool("socket-reuse-address", &c.SocketOpts.ReuseAddress, false, "Set SO_REUSEADDR on listeners.").in("reuse-address").section = "socket-options"
}

func (d *declaration) stoa() {
	d.group = "stoa"
	num(d, "partitions", &d.cfg.Partitions, 0, "Number of partition groups with which a cluster is bootstrapped, 1 to 16, the same on all members (0: 4).")
	d.choice("grpc-transport", &d.cfg.GRPCTransport, "How client connections are served: by stoa's own transport, or by grpc-go, which needs more CPU.", "own", "grpc-go")
	d.choice("balance", &d.cfg.Balance, "Whether slots of keys move between partitions, while this member leads, to even out their load.", "on", "off")
	d.bool("enable-grpc-reflection", &d.cfg.EnableReflection, false, "Describe the gRPC services to clients that ask (gRPC server reflection).")
	num(d, "memory-limit", &d.cfg.MemoryLimit, 0, "Bytes of memory that this server may use: requests beyond it are refused (0: 9/10 of what its control group or the machine has, negative: any amount).")
	d.bool("enable-ui", &d.cfg.EnableUI, false, "Serve a page for browsers at the URLs of --listen-metrics-urls + /ui/.")
	d.text("audit-log", &d.cfg.AuditLog, "", "File to which writes, administrative and refused requests are recorded, with their users; rotated with --enable-log-rotation.")
	d.bool("convert-etcd-data", &d.cfg.ConvertEtcdData, false, "Convert a --data-dir of an etcd that was stopped with SIGTERM. Its files are kept in member.etcd. No effect on a directory of stoa's.")
}

func (d *declaration) limits() {
	c := d.cfg
	d.group = "Limits"
	num(d, "quota-backend-bytes", &c.QuotaBackendBytes, 0, "Size at which the backend raises the space alarm and refuses writes (0: 2 GiB, negative: none).")
	d.duration("backend-batch-interval", &c.BackendBatchInterval, 0, "Maximum time between two flushes of the backend (0: 100ms).")
	d.text("backend-bbolt-freelist-type", &c.freelist, "", "Freelist of the backend: array or map.").noEffect("the freelist is always a map", "", "map")
	num(d, "max-txn-ops", &c.MaxTxnOps, 128, "Maximum number of operations in a transaction.")
	num(d, "max-request-bytes", &c.MaxRequestBytes, 1536*1024, "Maximum client request size in bytes.")
	num(d, "max-concurrent-streams", &c.MaxConcurrentStreams, math.MaxUint32, "Maximum concurrent streams of one client connection.")
	d.duration("grpc-keepalive-min-time", &c.KeepAlive.MinTime, 5*time.Second, "Minimum interval at which a client may ping the server (0: none).")
	d.duration("grpc-keepalive-interval", &c.KeepAlive.Interval, 2*time.Hour, "Interval at which the server pings a silent client (0 to disable).")
	d.duration("grpc-keepalive-timeout", &c.KeepAlive.Timeout, 20*time.Second, "Wait for the answer to such a ping before the connection is closed (0 to disable).")
	num(d, "max-learners", &c.MaxLearners, 1, "Maximum number of learners in the cluster.")
}

func (d *declaration) clustering() {
	c := d.cfg
	d.group = "Clustering"
	d.urls("initial-advertise-peer-urls", &c.AdvertisePeerURLs, defaultPeerURL, "List of this member's peer URLs to advertise to the rest of the cluster.")
	d.text("initial-cluster", &c.initialCluster, defaultCluster, "Founding members: name=url,name=url... Ignored by a server that has data, like the other --initial flags.")
	d.choice("initial-cluster-state", &c.clusterState, "Whether the cluster is to be bootstrapped ('new') or joined ('existing'). Ignored by a server that has data.", "new", "existing")
	d.text("initial-cluster-token", &c.InitialClusterToken, "etcd-cluster", "Token that keeps clusters bootstrapped with equal members apart.")
	d.urls("advertise-client-urls", &c.AdvertiseClientURLs, defaultClientURL, "List of this member's client URLs to advertise to the public.")
	d.bool("force-new-cluster", &c.ForceNewCluster, false, "Make this member the only one of its cluster, after the majority of the others is lost; start it without the flag once new members are added.")
	d.bool("strict-reconfig-check", &c.StrictReconfigCheck, true, "Reject reconfiguration requests that would cause quorum loss.")
	d.text("auto-compaction-retention", &c.retention, "0", "History to keep: hours or a duration (periodic), or a number of revisions (revision). 0 disables auto compaction.")
	d.text("auto-compaction-mode", &c.compactionMode, "periodic", "What the retention counts: periodic or revision.")
}

func (d *declaration) security() {
	c := d.cfg
	d.group = "Security"
	d.list("cipher-suites", &c.cipherSuites, "Comma-separated TLS cipher suites (empty: Go's choice).")
	d.text("tls-min-version", &c.tlsMin, "TLS1.2", "Minimum TLS version: TLS1.2 or TLS1.3.")
	d.text("tls-max-version", &c.tlsMax, "", "Maximum TLS version: TLS1.2 or TLS1.3 (empty: Go's choice).")
	num(d, "self-signed-cert-validity", &c.CertYears, 1, "Validity in years of the certificates of --auto-tls and --peer-auto-tls.")
	d.set("host-whitelist", &c.HostWhitelist, "*", "Comma-separated host names accepted in plain HTTP requests (empty or * allows all).")
	d.add("cors", origins{&c.CORS}, "Comma-separated origins accepted by CORS (empty or * allows all).")
	c.CORS = []string{"*"}
	d.text("auth-token", &c.AuthToken, "simple", "Tokens of authenticated clients: 'simple', or 'jwt,pub-key=FILE,priv-key=FILE,sign-method=RS512,ttl=10m' (RS, PS, ES and HS methods, EdDSA).")
	num(d, "bcrypt-cost", &c.BcryptCost, 10, "Cost of bcrypt for the hashes of passwords (4 to 31).")
	num(d, "auth-token-ttl", &c.AuthTokenTTL, 300, "Seconds for which an unused simple token is good.")
}

func (d *declaration) clientTLS() {
	c, t := d.cfg, &d.cfg.ClientTLS
	d.section = "client-transport-security"
	defer func() { d.section = "" }()
	d.text("cert-file", &t.CertFile, "", "Path to the client server TLS cert file.")
	d.text("key-file", &t.KeyFile, "", "Path to the client server TLS key file.")
	d.text("client-cert-file", &t.ClientCertFile, "", "Cert file for the server's own client connections, if not the server's cert.").noEffect("a server makes no connections to client ports")
	d.text("client-key-file", &t.ClientKeyFile, "", "Key file for the server's own client connections.").noEffect("a server makes no connections to client ports")
	d.bool("client-cert-auth", &t.ClientCertAuth, false, "Demand a certificate of clients.")
	d.text("client-crl-file", &t.CRLFile, "", "Path to the client certificate revocation list file.").flagOnly()
	d.list("client-cert-allowed-hostname", &t.AllowedHostnames, "Host names of which a client certificate has to carry one.").in("allowed-hostname")
	d.text("trusted-ca-file", &t.TrustedCAFile, "", "Path to the client server TLS trusted CA cert file.")
	d.bool("auto-tls", &c.ClientAutoTLS, false, "Client TLS with generated certificates.")
}

func (d *declaration) peerTLS() {
	c, t := d.cfg, &d.cfg.PeerTLS
	d.section = "peer-transport-security"
	defer func() { d.section = "" }()
	d.text("peer-cert-file", &t.CertFile, "", "Path to the peer server TLS cert file.").in("cert-file")
	d.text("peer-key-file", &t.KeyFile, "", "Path to the peer server TLS key file.").in("key-file")
	d.text("peer-client-cert-file", &t.ClientCertFile, "", "Cert file for connections to peers, if not the peer cert.").in("client-cert-file")
	d.text("peer-client-key-file", &t.ClientKeyFile, "", "Key file for connections to peers.").in("client-key-file")
	d.bool("peer-client-cert-auth", &t.ClientCertAuth, false, "Demand a certificate of peers.").in("client-cert-auth")
	d.text("peer-trusted-ca-file", &t.TrustedCAFile, "", "Path to the peer server TLS trusted CA file.").in("trusted-ca-file")
	d.bool("peer-auto-tls", &c.PeerAutoTLS, false, "Peer TLS with generated certificates.").in("auto-tls")
	d.text("peer-crl-file", &t.CRLFile, "", "Path to the peer certificate revocation list file.").flagOnly()
	d.list("peer-cert-allowed-cn", &t.AllowedCNs, "Common names of which a peer certificate has to carry one.").in("allowed-cn")
	d.list("peer-cert-allowed-hostname", &t.AllowedHostnames, "Host names of which a peer certificate has to carry one.").in("allowed-hostname")
	d.bool("peer-skip-client-san-verification", &t.SkipClientSANVerify, false, "Don't compare a peer's address with its certificate.").in("skip-client-san-verification")
}

func (d *declaration) logging() {
	l := &d.cfg.Log
	d.group = "Logging"
	d.text("logger", &d.cfg.logger, "zap", "Only zap.")
	d.set("log-outputs", &l.Outputs, "default", "Comma-separated: stdout, stderr, systemd/journal, or paths of files.")
	d.text("log-level", &l.Level, "info", "debug, info, warn, error, panic, or fatal.")
	d.text("log-format", &l.Format, "json", "json or console.")
	d.bool("enable-log-rotation", &d.cfg.rotate, false, "Rotate the one file that --log-outputs names.")
	d.text("log-rotation-config-json", &d.cfg.rotation, defaultRotation, "How to rotate it: maxsize (MiB), maxage (days), maxbackups, localtime, compress.")
}

func (d *declaration) tracing() {
	t := &d.cfg.Tracing
	d.group = "Distributed tracing"
	d.bool("enable-distributed-tracing", &t.Enable, false, "Export spans of sampled requests over OTLP.")
	d.text("distributed-tracing-address", &t.Address, "localhost:4317", "Address of the collector: gRPC without TLS.")
	d.text("distributed-tracing-service-name", &t.Service, "etcd", "Name of the service, the same for all members.")
	d.text("distributed-tracing-instance-id", &t.Instance, "", "ID of this member in the spans, unique among the members (empty: none).")
	num(d, "distributed-tracing-sampling-rate", &t.PerMillion, 0, "Samples per million requests, of those whose client sends no span of its own.")
}

func (d *declaration) upkeep() {
	c := d.cfg
	d.group = "Monitoring and upkeep"
	d.choice("metrics", &c.Metrics, "Detail of exported metrics: basic, or extensive to include gRPC latency histograms.", "basic", "extensive")
	d.bool("enable-pprof", &c.EnablePprof, false, "Serve profiles at the client URL + /debug/pprof/.")
	d.duration("watch-progress-notify-interval", &c.WatchProgressNotifyInterval, 0, "Interval of periodic watch progress notifications (0: 10m).")
	d.duration("corrupt-check-time", &c.CorruptCheckTime, 10*time.Second, "How often the members compare their states, while this one leads (0: never).")
	d.duration("warning-apply-duration", &c.WarningApplyDuration, 100*time.Millisecond, "Time after which a slow read or apply is logged.")
	d.duration("warning-unary-request-duration", &c.WarningUnaryDuration, 300*time.Millisecond, "Time after which a slow unary request is logged.")
	num(d, "bootstrap-defrag-threshold-megabytes", &c.DefragThresholdMegabytes, 0, "Defragment the backend at the start if that frees as many megabytes (0: never).")
	d.bool("unsafe-no-fsync", new(bool), false, "Disable fsync: loses data in a crash.").noEffect("every write is synced all the same")
}

const (
	defaultName      = "default"
	defaultClientURL = "http://localhost:2379"
	defaultPeerURL   = "http://localhost:2380"
	defaultCluster   = defaultName + "=" + defaultPeerURL
	defaultRotation  = `{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`
)
