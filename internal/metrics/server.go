package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Server measures the way of a request.
type Server struct {
	SlowApplies       prometheus.Counter // with a line in the log each
	SlowReadIndexes   prometheus.Counter
	ReadIndexesFailed prometheus.Counter
	HeartbeatFailures prometheus.Counter
	SnapshotInstalls  prometheus.Gauge // under way
	Fenced            prometheus.Gauge

	ranges        [2]*Histogram // by success
	ops, requests map[string]*[2]*Histogram
}

// etcd's names of requests, and of requests that are applied. All others are "unknown", as
// in etcd.
var (
	applyOps = []string{
		"Put", "DeleteRange", "Txn", "Compaction", "LeaseGrant", "LeaseRevoke", "LeaseCheckpoint", "Alarm",
		"ClusterMemberAttrSet", unknown,
	}
	requestTypes = append([]string{"Range", "ReadonlyTxn"}, applyOps...)
)

const unknown = "unknown"

func (s *Server) declare(f factory) {
	s.SlowApplies = f.counter("etcd_server_slow_apply_total", "Requests that took longer than --warning-apply-duration to be read or applied.")
	s.SlowReadIndexes = f.counter("etcd_server_slow_read_indexes_total", "Strict reads that waited for their read point longer than half a second.")
	s.ReadIndexesFailed = f.counter("etcd_server_read_indexes_failed_total", "Strict reads that got no read point.")
	s.HeartbeatFailures = f.counter("etcd_server_heartbeat_send_failures_total", "Heartbeats that the leader sent too late.")
	s.Fenced = f.gauge("stoa_fenced", "1 while this server serves nothing, since its state differs from that of a majority.")
	s.SnapshotInstalls = f.gauge("etcd_server_snapshot_apply_in_progress_total", "1 while a snapshot of another server is being installed.")

	const least, buckets = 100 * time.Microsecond, 20 // etcd's
	ranges := NewFamily("etcd_server_range_duration_seconds", "How long it took to evaluate a Range.", least, buckets, "success")
	s.ranges = [2]*Histogram{ranges.With("false"), ranges.With("true")}
	applies := NewFamily("etcd_server_apply_duration_seconds",
		"How long it took to apply a request; of those that were applied together, the mean.", least, buckets, "version", "op", "success")
	s.ops = map[string]*[2]*Histogram{}
	for _, op := range applyOps {
		s.ops[op] = &[2]*Histogram{applies.With("v3", op, "false"), applies.With("v3", op, "true")}
	}
	requests := NewFamily("etcd_server_request_duration_seconds", "How long unary requests took, from their arrival at this member.",
		time.Millisecond, 14, "type", "success")
	s.requests = map[string]*[2]*Histogram{}
	for _, t := range requestTypes {
		s.requests[t] = &[2]*Histogram{requests.With(t, "false"), requests.With(t, "true")}
	}
	f.r.MustRegister(ranges, applies, requests)
}

func success(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// Ranged counts the evaluation of a Range.
func (s *Server) Ranged(took time.Duration, ok bool) { s.ranges[success(ok)].Observe(took) }

// Applied is where the applications of requests of one kind are counted, by success. op is
// etcd's name.
func (s *Server) Applied(op string) *[2]*Histogram {
	return named(s.ops, op)
}

// Requests is where the durations of requests of one type are counted, by success.
func (s *Server) Requests(of string) *[2]*Histogram { return named(s.requests, of) }

func named(all map[string]*[2]*Histogram, name string) *[2]*Histogram {
	if h := all[name]; h != nil {
		return h
	}
	return all[unknown]
}

// Store measures work on the history that isn't part of a request.
type Store struct {
	Hash, HashRevision prometheus.Histogram
	Compaction         Compaction
	LeaseTTL           prometheus.Histogram // seconds
}

// Compaction is the physical part of compactions. Durations are in milliseconds.
type Compaction struct {
	Keys         prometheus.Counter
	Last         prometheus.Gauge // Unix time
	Total, Pause prometheus.Histogram
	IndexPause   prometheus.Histogram
}

func (s *Store) declare(f factory) {
	hashed := prometheus.ExponentialBuckets(0.01, 2, 15) // these and the following are etcd's
	s.Hash = f.histogram("etcd_mvcc_hash_duration_seconds", "How long it took to hash the backend.", hashed)
	s.HashRevision = f.histogram("etcd_mvcc_hash_rev_duration_seconds", "How long it took to hash the history up to a revision.", hashed)
	s.LeaseTTL = f.histogram("etcd_debugging_lease_ttl_total", "TTLs of the leases that were granted, in seconds.", prometheus.ExponentialBuckets(1, 2, 24))
	c := &s.Compaction
	c.Keys = f.counter("etcd_debugging_mvcc_db_compaction_keys_total", "Revisions that compactions have removed from the backend.")
	c.Last = f.gauge("etcd_debugging_mvcc_db_compaction_last", "Unix time of the last compaction of the backend, 0 if there was none since the start.")
	c.Total = f.histogram("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
		"Time from a compaction to its end in the backend.", prometheus.ExponentialBuckets(100, 2, 14))
	c.Pause = f.histogram("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
		"How long flushes took that removed compacted revisions from the backend.", prometheus.ExponentialBuckets(1, 2, 13))
	c.IndexPause = f.histogram("etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
		"How long it took to look for compacted revisions in the index, after a flush; in pieces, between which requests are served.", prometheus.ExponentialBuckets(0.5, 2, 14))
}
