package metrics

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is how a server stands at one moment.
type State struct {
	ServerID        uint64
	HasLeader       bool
	IsLeader        bool
	IsLearner       bool
	LeaderChanges   int64
	Peers           []uint64 // other members
	Alarms          []Alarm
	Revision        int64
	CompactRevision int64
	Keys            int64
	Leases          int
	Sessions        int
	AuthRevision    uint64

	BackendBytes      int64
	BackendBytesInUse int64
	BackendQuota      int64
	BackendReaders    int           // open read transactions
	Flushing          time.Duration // for how long a flush hasn't ended
	WALBytes          int64
	WALSegments       int
	Moving            bool
	Level             float64           // the cluster's version
	Releases          map[uint64]string // of stoa, that members have announced, by their IDs

	WatchStreams int64
	Watchers     int64
	SlowWatchers int64 // catching up from history
	WatchEvents  int64 // sent since the start

	Tenants    []Tenant
	Counts     Counts
	Partitions []Partition
}

// Alarm is one that is raised.
type Alarm struct {
	Member uint64
	Type   string // etcd's name of it
}

// Counts only grow while the server runs.
type Counts struct {
	Puts, Deletes, PutBytes, Ranges, Txns                      int64
	LearnersPromoted                                           int64
	ProposalsFailed                                            int64
	LeasesGranted, LeasesRevoked, LeasesRenewed, LeasesExpired int64
	Decisions, SlotsMoved                                      int64 // of the balancer
}

// Partition is how one partition group stands.
type Partition struct {
	IsLeader         bool
	Term             uint64
	Committed        uint64
	Applied          uint64
	Pending          int64 // proposals that wait for their answer
	Revision, Closed int64
	Keys, Bytes      int64
	LogBytes         int64         // of entries in memory
	Load             float64       // of the loop, decayed
	Worked           time.Duration // by the loop
}

// Watch shows the state that state returns, at each scrape. state must not
// block on anything that a request can hold for long.
func (m *Metrics) Watch(state func() State) {
	m.Registry.MustRegister(&stateCollector{state})
}

type stateCollector struct{ state func() State }

type line struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*State) float64
}

func serverLine(name, help string, of func(*State) float64) line {
	return line{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of}
}

func serverCounter(name, help string, of func(*State) float64) line {
	return line{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of}
}

// Sums over partitions are etcd's numbers.
func sum(of func(*Partition) float64) func(*State) float64 {
	return func(s *State) float64 {
		total := 0.0
		for i := range s.Partitions {
			total += of(&s.Partitions[i])
		}
		return total
	}
}

var serverLines = []line{
	serverLine("etcd_server_has_leader", "Whether a leader exists. 1 is existence, 0 is not.", func(s *State) float64 { return truth(s.HasLeader) }),
	serverLine("etcd_server_is_leader", "Whether this member is the leader. 1 if it is, 0 otherwise.", func(s *State) float64 { return truth(s.IsLeader) }),
	serverLine("etcd_server_is_learner", "Whether this member is a learner. 1 if it is, 0 otherwise.", func(s *State) float64 { return truth(s.IsLearner) }),
	serverCounter("etcd_server_leader_changes_seen_total", "Leader changes seen.", func(s *State) float64 { return float64(s.LeaderChanges) }),
	serverLine("etcd_server_proposals_pending", "Proposals that wait for their answer.", sum(func(p *Partition) float64 { return float64(p.Pending) })),
	serverCounter("etcd_server_proposals_failed_total", "Proposals that failed.", func(s *State) float64 { return float64(s.Counts.ProposalsFailed) }),
	serverCounter("etcd_server_learner_promote_successes", "Learners that were given a vote by a request to this member.", func(s *State) float64 { return float64(s.Counts.LearnersPromoted) }),
	serverCounter("etcd_mvcc_put_total", "Puts seen by this member.", func(s *State) float64 { return float64(s.Counts.Puts) }),
	serverCounter("etcd_mvcc_delete_total", "Deletes seen by this member.", func(s *State) float64 { return float64(s.Counts.Deletes) }),
	serverCounter("etcd_mvcc_range_total", "Ranges asked of this member.", func(s *State) float64 { return float64(s.Counts.Ranges) }),
	serverCounter("etcd_mvcc_txn_total", "Transactions asked of this member.", func(s *State) float64 { return float64(s.Counts.Txns) }),
	serverLine("etcd_debugging_mvcc_total_put_size_in_bytes", "Size of the puts seen by this member.", func(s *State) float64 { return float64(s.Counts.PutBytes) }),
	serverCounter("etcd_debugging_lease_granted_total", "Leases granted.", func(s *State) float64 { return float64(s.Counts.LeasesGranted) }),
	serverCounter("etcd_debugging_lease_revoked_total", "Leases revoked.", func(s *State) float64 { return float64(s.Counts.LeasesRevoked) }),
	serverCounter("etcd_debugging_lease_renewed_total", "Renewals answered by this member as the leader.", func(s *State) float64 { return float64(s.Counts.LeasesRenewed) }),
	serverCounter("etcd_debugging_server_lease_expired_total", "Leases that this member, as the leader, found to have run out.", func(s *State) float64 { return float64(s.Counts.LeasesExpired) }),
	serverCounter("etcd_debugging_mvcc_events_total", "Events sent to watchers.", func(s *State) float64 { return float64(s.WatchEvents) }),
	serverLine("etcd_server_proposals_committed_total", "Entries committed in all groups.", sum(func(p *Partition) float64 { return float64(p.Committed) })),
	serverLine("etcd_server_proposals_applied_total", "Entries applied in all groups.", sum(func(p *Partition) float64 { return float64(p.Applied) })),
	serverLine("etcd_server_quota_backend_bytes", "Size at which the space alarm is raised.", func(s *State) float64 { return float64(s.BackendQuota) }),
	serverLine("stoa_flush_waiting_seconds", "For how long the flush of the state file that is due or under way has not ended, 0 if there is none. Until it ends the log is not cut.", func(s *State) float64 { return s.Flushing.Seconds() }),
	serverLine("etcd_mvcc_db_open_read_transactions", "Read transactions of the backend that are open.", func(s *State) float64 { return float64(s.BackendReaders) }),
	serverLine("etcd_mvcc_db_total_size_in_bytes", "Size of the backend file.", func(s *State) float64 { return float64(s.BackendBytes) }),
	serverLine("etcd_mvcc_db_total_size_in_use_in_bytes", "Part of the backend file that is in use.", func(s *State) float64 { return float64(s.BackendBytesInUse) }),
	serverLine("etcd_debugging_mvcc_current_revision", "The current revision.", func(s *State) float64 { return float64(s.Revision) }),
	serverLine("etcd_debugging_mvcc_compact_revision", "The last revision that was compacted.", func(s *State) float64 { return float64(s.CompactRevision) }),
	serverLine("etcd_debugging_mvcc_keys_total", "Keys.", func(s *State) float64 { return float64(s.Keys) }),
	serverLine("etcd_debugging_mvcc_watch_stream_total", "Watch streams.", func(s *State) float64 { return float64(s.WatchStreams) }),
	serverLine("etcd_debugging_mvcc_watcher_total", "Watchers.", func(s *State) float64 { return float64(s.Watchers) }),
	serverLine("etcd_debugging_mvcc_slow_watcher_total", "Watchers that catch up from history.", func(s *State) float64 { return float64(s.SlowWatchers) }),
	serverLine("etcd_debugging_auth_revision", "Changes of users, roles and permissions.", func(s *State) float64 { return float64(s.AuthRevision) }),
	serverLine("stoa_leases", "Leases.", func(s *State) float64 { return float64(s.Leases) }),
	serverLine("stoa_sessions", "Sessions that are open in the cluster.", func(s *State) float64 { return float64(s.Sessions) }),
	serverLine("stoa_wal_bytes", "Size of the log on disk.", func(s *State) float64 { return float64(s.WALBytes) }),
	serverLine("stoa_wal_segments", "Segments of the log on disk.", func(s *State) float64 { return float64(s.WALSegments) }),
	serverLine("stoa_keys_moving", "Whether keys are on their way from partition to partition. 1 if they are, 0 otherwise.", func(s *State) float64 { return truth(s.Moving) }),
	serverCounter("stoa_balancer_decisions_total", "Decisions of this member, as the leader, to move slots between partitions.", func(s *State) float64 { return float64(s.Counts.Decisions) }),
	serverCounter("stoa_balancer_slots_moved_total", "Slots that they have moved.", func(s *State) float64 { return float64(s.Counts.SlotsMoved) }),
	serverLine("stoa_cluster_level", "The version of the cluster, as the number of its level.", func(s *State) float64 { return s.Level }),
	serverLine("stoa_partitions", "Partition groups.", func(s *State) float64 { return float64(len(s.Partitions)) }),
	serverLine("os_fd_used", "Open file descriptors.", func(*State) float64 { return openFiles() }),
	serverLine("os_fd_limit", "Limit of open file descriptors.", func(*State) float64 { return fileLimit() }),
}

type partitionLine struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*Partition) float64
}

func perPartition(name, help string, of func(*Partition) float64) partitionLine {
	return partitionLine{prometheus.NewDesc("stoa_partition_"+name, help, []string{"partition"}, nil), prometheus.GaugeValue, of}
}

func counterPerPartition(name, help string, of func(*Partition) float64) partitionLine {
	l := perPartition(name, help, of)
	l.kind = prometheus.CounterValue
	return l
}

var partitionLines = []partitionLine{
	perPartition("is_leader", "Whether this member leads the partition's group.", func(p *Partition) float64 { return truth(p.IsLeader) }),
	perPartition("term", "Raft term of the partition's group.", func(p *Partition) float64 { return float64(p.Term) }),
	perPartition("committed_index", "Last index committed in the partition's log.", func(p *Partition) float64 { return float64(p.Committed) }),
	perPartition("applied_index", "Last index applied in the partition.", func(p *Partition) float64 { return float64(p.Applied) }),
	perPartition("revision", "Last revision that changed a key of the partition.", func(p *Partition) float64 { return float64(p.Revision) }),
	perPartition("closed_revision", "Nothing at or below this revision is still to come in the partition.", func(p *Partition) float64 { return float64(p.Closed) }),
	perPartition("keys", "Keys of the partition.", func(p *Partition) float64 { return float64(p.Keys) }),
	perPartition("bytes", "Bytes of the keys of the partition with their values.", func(p *Partition) float64 { return float64(p.Bytes) }),
	perPartition("load", "Part of the time that the partition's loop works, decayed with a time constant of 0.7 s.", func(p *Partition) float64 { return p.Load }),
	counterPerPartition("loop_seconds_total", "Time that the partition's loop has worked.", func(p *Partition) float64 { return p.Worked.Seconds() }),
	perPartition("log_bytes", "Bytes of log entries that the partition holds in memory.", func(p *Partition) float64 { return float64(p.LogBytes) }),
}

var (
	knownPeers = prometheus.NewDesc("etcd_network_known_peers", "1 for each other member that this one knows of.", []string{"Local", "Remote"}, nil)
	releases   = prometheus.NewDesc("stoa_member_version", "1 for each member, with the release of stoa that it has announced.", []string{"member", "version"}, nil)
	alarms     = prometheus.NewDesc("etcd_debugging_server_alarms", "1 for each alarm that is raised.", []string{"server_id", "alarm_type"}, nil)
)

var serverID = prometheus.NewDesc("etcd_server_id", "This member's ID as a label, in hexadecimal.", []string{"server_id"}, nil)

func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	out <- serverID
	out <- knownPeers
	out <- alarms
	out <- releases
	for _, l := range tenantLines {
		out <- l.desc
	}
	for _, l := range serverLines {
		out <- l.desc
	}
	for _, l := range partitionLines {
		out <- l.desc
	}
}

func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	s := c.state()
	out <- prometheus.MustNewConstMetric(serverID, prometheus.GaugeValue, 1, hex(s.ServerID))
	for _, id := range s.Peers {
		out <- prometheus.MustNewConstMetric(knownPeers, prometheus.GaugeValue, 1, hex(s.ServerID), hex(id))
	}
	for _, a := range s.Alarms {
		out <- prometheus.MustNewConstMetric(alarms, prometheus.GaugeValue, 1, hex(a.Member), a.Type)
	}
	for id, release := range s.Releases {
		out <- prometheus.MustNewConstMetric(releases, prometheus.GaugeValue, 1, hex(id), release)
	}
	collectTenants(s.Tenants, out)
	for _, l := range serverLines {
		out <- prometheus.MustNewConstMetric(l.desc, l.kind, l.of(&s))
	}
	for i := range s.Partitions {
		for _, l := range partitionLines {
			out <- prometheus.MustNewConstMetric(l.desc, l.kind, l.of(&s.Partitions[i]), strconv.Itoa(i))
		}
	}
}

func hex(id uint64) string { return strconv.FormatUint(id, 16) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func openFiles() float64 {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return float64(len(names))
}

func fileLimit() float64 {
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) != nil {
		return 0
	}
	return float64(lim.Cur)
}
