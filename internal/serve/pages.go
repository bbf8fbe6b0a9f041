package serve

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"expvar"
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/version"
)

// Pages configures the HTTP pages of a server.
type Pages struct {
	Health        Health
	HealthCounter HealthCounter
	HealthTimeout time.Duration // how long /health waits for its read
	Metrics       http.Handler
	Version       ClusterVersion
	Pprof         bool
	Gateway       http.Handler // of /v3/; nil: none
	UI            http.Handler // of /ui and the paths below, on the metrics port; nil: none
	// NamesCount reports whether clients are known by the names in their certificates,
	// which the gateway can't tell its services. nil: never.
	NamesCount func() bool
	Hosts      []string // accepted in plain requests; "*" or none: all
	Origins    []string // accepted by CORS; "*" or none: all
	Logger     *zap.Logger
}

// ClientPages is the HTTP of a client port.
func ClientPages(p Pages) http.Handler {
	mux := http.NewServeMux()
	p.observe(mux)
	mux.HandleFunc("/version", p.Version.serve)
	mux.Handle("/debug/vars", expvar.Handler())
	if p.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if p.Gateway != nil {
		mux.Handle("/v3/", p.gateway())
	}
	return newGuard(p.Hosts, p.Origins, p.Logger, mux)
}

// gateway refuses clients that would be taken for somebody by the name in their
// certificate over gRPC, and for nobody here.
func (p Pages) gateway() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && hasName(r.TLS) && p.NamesCount != nil && p.NamesCount() {
			http.Error(w, "CommonName of client sending a request against gateway will be ignored and not used as expected", http.StatusBadRequest) // etcd's words
			return
		}
		p.Gateway.ServeHTTP(w, r)
	})
}

func hasName(s *tls.ConnectionState) bool {
	return slices.ContainsFunc(s.VerifiedChains, func(chain []*x509.Certificate) bool {
		return len(chain) > 0 && chain[0].Subject.CommonName != ""
	})
}

// MetricsPages is the HTTP of a metrics port.
func MetricsPages(p Pages) http.Handler {
	mux := http.NewServeMux()
	p.observe(mux)
	if p.UI != nil {
		page := &hostGuard{hosts: p.Hosts, lg: p.Logger, next: p.UI}
		mux.Handle("/ui", page)
		mux.Handle("/ui/", page)
	}
	return mux
}

func (p Pages) observe(mux *http.ServeMux) {
	mux.Handle("/metrics", p.Metrics)
	h := &healthPages{server: p.Health, count: p.HealthCounter, timeout: p.HealthTimeout, lg: p.Logger}
	h.register(mux)
}

// ClusterVersion returns the version of the cluster, as a release of stoa, "" if it isn't known
// yet.
type ClusterVersion func() string

// Members is the membership that the pages of a peer port show.
type Members interface {
	ClusterID() uint64
	Members() []*pb.Member
	ClusterVersion() string
}

// PeerPages is the HTTP of a peer port.
func PeerPages(m Members) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/version", ClusterVersion(m.ClusterVersion).serve)
	mux.HandleFunc("/members", func(w http.ResponseWriter, r *http.Request) {
		if !onlyGet(w, r) {
			return
		}
		w.Header().Set(clusterHeader, fmt.Sprintf("%x", m.ClusterID()))
		WriteJSON(w, http.StatusOK, membersOf(m.Members()))
	})
	return mux
}

// member has etcd's names of the JSON fields, which aren't protobuf's.
type member struct {
	ID         uint64   `json:"id"`
	PeerURLs   []string `json:"peerURLs"`
	IsLearner  bool     `json:"isLearner,omitempty"`
	Name       string   `json:"name,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
}

func membersOf(ms []*pb.Member) []member {
	out := make([]member, len(ms))
	for i, m := range ms {
		out[i] = member{ID: m.ID, PeerURLs: m.PeerURLs, IsLearner: m.IsLearner, Name: m.Name, ClientURLs: m.ClientURLs}
	}
	return out
}

// versions is etcd's answer to /version, with stoa's own release and the version of the
// cluster, as a release of stoa, added.
type versions struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	Stoa    string `json:"stoa"`
	Agreed  string `json:"stoacluster"`
}

func (of ClusterVersion) serve(w http.ResponseWriter, r *http.Request) {
	if onlyGet(w, r) {
		WriteJSON(w, http.StatusOK, versions{Server: version.Etcd, Cluster: version.Cluster, Storage: version.Storage, Stoa: version.Stoa, Agreed: of()})
	}
}

// WriteJSON answers a request for a page with JSON.
func WriteJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(body)
}
