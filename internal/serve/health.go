package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// Health is the server's part of the health pages. The methods may be called
// at any time and from several goroutines.
type Health interface {
	Alarms() []*pb.AlarmMember
	// HasLeader reports whether the server knows a leader.
	HasLeader() bool
	// Read does a minimal read, serializable or linearizable.
	Read(ctx context.Context, serializable bool) error
	IsLearner() bool
}

// HealthCounter counts the result of each check; kind is health, livez or
// readyz, and name that of the check inside the latter two.
type HealthCounter interface {
	HealthChecked(kind, name string, ok bool)
}

type healthPages struct {
	server  Health
	count   HealthCounter
	timeout time.Duration // of the read behind /health
	lg      *zap.Logger
}

// check is one line of /livez or /readyz.
type check struct {
	name string
	run  func(context.Context) error
}

func (h *healthPages) register(mux *http.ServeMux) {
	mux.HandleFunc("/health", h.serveHealth)
	serializable := check{"serializable_read", func(ctx context.Context) error { return h.server.Read(ctx, true) }}
	h.registerChecks(mux, "livez", serializable)
	h.registerChecks(mux, "readyz",
		check{"data_corruption", h.notCorrupt},
		serializable,
		check{"linearizable_read", func(ctx context.Context) error { return h.server.Read(ctx, false) }},
		check{"non_learner", h.notLearner})
}

func (h *healthPages) notCorrupt(context.Context) error {
	for _, a := range h.server.Alarms() {
		if a.Alarm == pb.AlarmType_CORRUPT {
			return fmt.Errorf("alarm activated: %s", a.Alarm)
		}
	}
	return nil
}

func (h *healthPages) notLearner(context.Context) error {
	if h.server.IsLearner() {
		return errors.New("not supported for learner")
	}
	return nil
}

// healthAnswer is the body of /health.
type healthAnswer struct {
	Health string `json:"health"`
	Reason string `json:"reason"`
}

func (h *healthPages) serveHealth(w http.ResponseWriter, r *http.Request) {
	if !onlyGet(w, r) {
		return
	}
	reason := h.unhealthy(r)
	h.count.HealthChecked("health", "", reason == "")
	answer := healthAnswer{Health: "true"}
	if reason != "" {
		answer = healthAnswer{Health: "false", Reason: reason}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if reason != "" {
		h.lg.Warn("/health error", zap.ByteString("output", body), zap.Int("status-code", http.StatusServiceUnavailable))
		http.Error(w, string(body), http.StatusServiceUnavailable)
		return
	}
	w.Write(body)
}

// unhealthy returns why the server isn't, or nothing. ?exclude=ALARM skips
// alarms, ?serializable=true checks this server alone.
func (h *healthPages) unhealthy(r *http.Request) string {
	excluded := querySet(r, "exclude")
	for _, a := range h.server.Alarms() {
		if excluded[a.Alarm.String()] {
			continue
		}
		switch a.Alarm {
		case pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT:
			return "ALARM " + a.Alarm.String()
		}
		return "ALARM UNKNOWN"
	}
	serializable := r.URL.Query().Get("serializable") == "true"
	if !serializable && !h.server.HasLeader() {
		return "RAFT NO LEADER"
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
	defer cancel()
	if err := h.server.Read(ctx, serializable); err != nil {
		return fmt.Sprintf("RANGE ERROR:%s", err)
	}
	return ""
}

// registerChecks adds /kind, which runs all checks but those of ?exclude=, and
// /kind/name for each of them.
func (h *healthPages) registerChecks(mux *http.ServeMux, kind string, checks ...check) {
	page := func(pick func(*http.Request) []check) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if onlyGet(w, r) {
				h.serveChecks(w, r, kind, pick(r))
			}
		}
	}
	mux.HandleFunc("/"+kind, page(func(r *http.Request) []check {
		excluded := querySet(r, "exclude")
		var picked []check
		for _, c := range checks {
			if !excluded[c.name] {
				picked = append(picked, c)
			}
			delete(excluded, c.name)
		}
		for name := range excluded { // asked for by a newer client, maybe
			h.lg.Warn("some health checks cannot be excluded", zap.String("missing-health-checks", name))
		}
		return picked
	}))
	for _, c := range checks {
		mux.HandleFunc("/"+kind+"/"+c.name, page(func(*http.Request) []check { return []check{c} }))
	}
}

func (h *healthPages) serveChecks(w http.ResponseWriter, r *http.Request, kind string, checks []check) {
	var report strings.Builder
	failed := false
	for _, c := range checks {
		err := c.run(r.Context())
		h.count.HealthChecked(kind, c.name, err == nil)
		if err != nil {
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: %v\n", c.name, err)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.name)
	}
	if failed {
		h.lg.Error("Health check error", zap.String("path", r.URL.Path), zap.String("reason", report.String()), zap.Int("status-code", http.StatusServiceUnavailable))
		http.Error(w, report.String(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.URL.Query().Has("verbose") {
		fmt.Fprint(w, report.String())
	}
	fmt.Fprint(w, "ok\n")
}

func querySet(r *http.Request, key string) map[string]bool {
	set := map[string]bool{}
	for _, v := range r.URL.Query()[key] {
		if v != "" {
			set[v] = true
		}
	}
	return set
}

func onlyGet(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet {
		return true
	}
	w.Header().Set("Allow", http.MethodGet)
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	return false
}
