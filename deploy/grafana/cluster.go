package main

// cluster shows what etcd's dashboard shows, and the resources of the servers.
func cluster() *dashboard {
	d := newDashboard("stoa-cluster", "stoa / Cluster")
	d.number("Members", "short", "Members that are up, and those that have a leader.",
		query{"up", `sum(up{job="$job"})`},
		query{"with a leader", `sum(etcd_server_has_leader{job="$job"})`})
	d.graph("Leader", "short", "The member that leads all partitions, and changes of the leader.",
		query{"{{instance}} leads", `etcd_server_is_leader{job="$job"}`},
		query{"changes", `max(increase(etcd_server_leader_changes_seen_total{job="$job"}[$__rate_interval]))`})
	d.number("Alarms", "short", "Alarms that are raised: NOSPACE, CORRUPT.",
		query{"{{alarm_type}}", `max by (alarm_type) (etcd_debugging_server_alarms{job="$job"})`})

	d.graph("Requests", "reqps", "Unary requests and those over gRPC streams that clients have begun, of all members.",
		query{"{{grpc_method}}", `sum by (grpc_method) (rate(grpc_server_started_total{job="$job"}[$__rate_interval])) > 0`})
	d.graph("Failed requests", "percentunit", "Part of the requests that failed because of the server.",
		query{"{{instance}}", `job_instance:grpc_server_failed:ratio_rate5m{job="$job"}`})
	d.graph("Request duration, p99", "s", "Unary requests, from their arrival at a member to their answer.",
		query{"{{type}}", `max by (type) (job_instance_type:etcd_server_request_duration_seconds:p99_5m{job="$job"})`})

	d.graph("Changes", "ops", "Of keys, once for the cluster: every member applies them all.",
		query{"puts", `max(rate(etcd_mvcc_put_total{job="$job"}[$__rate_interval]))`},
		query{"deletes", `max(rate(etcd_mvcc_delete_total{job="$job"}[$__rate_interval]))`},
		query{"events sent to watchers", `sum(rate(etcd_debugging_mvcc_events_total{job="$job"}[$__rate_interval]))`})
	d.graph("Proposals", "short", "Requests that wait for the log, and those that failed per second.",
		query{"{{instance}} pending", `etcd_server_proposals_pending{job="$job"}`},
		query{"{{instance}} failed", `rate(etcd_server_proposals_failed_total{job="$job"}[$__rate_interval])`})
	d.graph("Slow", "ops", "Applications, read points and heartbeats that took too long.",
		query{"{{instance}} applies", `rate(etcd_server_slow_apply_total{job="$job"}[$__rate_interval])`},
		query{"{{instance}} read points", `rate(etcd_server_slow_read_indexes_total{job="$job"}[$__rate_interval])`},
		query{"{{instance}} heartbeats", `rate(etcd_server_heartbeat_send_failures_total{job="$job"}[$__rate_interval])`})

	d.graph("Disk, p99", "s", "Syncs of the log, and commits of the state file.",
		query{"{{instance}} log", `job_instance:etcd_disk_wal_fsync_duration_seconds:p99_5m{job="$job"}`},
		query{"{{instance}} state file", `job_instance:etcd_disk_backend_commit_duration_seconds:p99_5m{job="$job"}`})
	d.graph("State file", "bytes", "Its size, the part in use, and the quota at which writes are refused.",
		query{"{{instance}} size", `etcd_mvcc_db_total_size_in_bytes{job="$job"}`},
		query{"{{instance}} in use", `etcd_mvcc_db_total_size_in_use_in_bytes{job="$job"}`},
		query{"quota", `min(etcd_server_quota_backend_bytes{job="$job"} > 0)`})
	d.graph("Log", "bytes", "What the log takes on the disk.", query{"{{instance}}", `stoa_wal_bytes{job="$job"}`})

	d.graph("CPU", "short", "Cores in use.", query{"{{instance}}", `rate(process_cpu_seconds_total{job="$job"}[$__rate_interval])`})
	d.graph("Memory", "bytes", "Resident memory.", query{"{{instance}}", `process_resident_memory_bytes{job="$job"}`})
	d.graph("File descriptors", "percentunit", "Part of those allowed that is in use.",
		query{"{{instance}}", `os_fd_used{job="$job"} / os_fd_limit{job="$job"}`})

	d.graph("Client traffic", "Bps", "Bytes on gRPC connections.",
		query{"{{instance}} received", `rate(etcd_network_client_grpc_received_bytes_total{job="$job"}[$__rate_interval])`},
		query{"{{instance}} sent", `rate(etcd_network_client_grpc_sent_bytes_total{job="$job"}[$__rate_interval])`})
	d.graph("Peer traffic", "Bps", "Bytes between members.",
		query{"{{instance}} received", `sum by (instance) (rate(etcd_network_peer_received_bytes_total{job="$job"}[$__rate_interval]))`},
		query{"{{instance}} sent", `sum by (instance) (rate(etcd_network_peer_sent_bytes_total{job="$job"}[$__rate_interval]))`})
	d.graph("Peer round trips, p99", "s", "From a ping to its answer.",
		query{"{{instance}} to {{To}}", `job_instance_to:etcd_network_peer_round_trip_time_seconds:p99_5m{job="$job"}`})
	return d
}
