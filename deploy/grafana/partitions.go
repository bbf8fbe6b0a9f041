package main

// partitions shows the partition groups beside each other.
func partitions() *dashboard {
	d := newDashboard("stoa-partitions", "stoa / Partitions")
	d.number("Partitions", "short", "Partition groups of the cluster.", query{"partitions", `max(stoa_partitions{job="$job"})`})
	d.graph("Partitions led", "short", "All partitions are led by one member; while they are not, writes wait.",
		query{"{{instance}}", `sum by (instance) (stoa_partition_is_leader{job="$job"})`})
	d.graph("Terms", "short", "Each election raises a partition's term.",
		query{"partition {{partition}}", `max by (partition) (stoa_partition_term{job="$job"})`})

	d.graph("Log entries", "ops", "Entries that each partition commits. One entry may carry several requests.",
		query{"partition {{partition}}", `max by (partition) (rate(stoa_partition_committed_index{job="$job"}[$__rate_interval]))`})
	d.graph("Unapplied entries", "short", "Entries that a member knows to be committed, and hasn't applied yet.",
		query{"{{instance}} partition {{partition}}", `stoa_partition_committed_index{job="$job"} - stoa_partition_applied_index{job="$job"}`})
	d.graph("Log in memory", "bytes", "Entries kept for members that lag.",
		query{"{{instance}} partition {{partition}}", `stoa_partition_log_bytes{job="$job"}`})

	d.graph("Keys", "short", "How the keys are spread.",
		query{"partition {{partition}}", `max by (partition) (stoa_partition_keys{job="$job"})`})
	d.graph("Load", "percentunit", "Part of the time that the loop of each partition works. While one is much busier than the others, it bounds the writes.",
		query{"{{instance}} partition {{partition}}", `rate(stoa_partition_loop_seconds_total{job="$job"}[$__rate_interval])`})
	d.graph("Load, decayed", "percentunit", "The same on the leader with a time constant of 0.7 s, which the balancer goes by.",
		query{"partition {{partition}}", `stoa_partition_load{job="$job"} * on (instance) group_left () etcd_server_is_leader{job="$job"}`})
	d.graph("Size", "bytes", "Of the keys of each partition with their values.",
		query{"partition {{partition}}", `max by (partition) (stoa_partition_bytes{job="$job"})`})
	d.graph("Revisions", "ops", "Growth of the last revision of each partition, and of the revisions that are closed: below them nothing is to come.",
		query{"last {{partition}}", `max by (partition) (rate(stoa_partition_revision{job="$job"}[$__rate_interval]))`},
		query{"closed {{partition}}", `max by (partition) (rate(stoa_partition_closed_revision{job="$job"}[$__rate_interval]))`})
	d.graph("Balancer", "short", "Decisions to move slots, and the slots moved, per minute.",
		query{"decisions", `sum(60 * rate(stoa_balancer_decisions_total{job="$job"}[$__rate_interval]))`},
		query{"slots", `sum(60 * rate(stoa_balancer_slots_moved_total{job="$job"}[$__rate_interval]))`})
	d.graph("Keys moving", "short", "1 while keys go from partition to partition: the balancer, an operator or an extension has moved them.",
		query{"{{instance}}", `stoa_keys_moving{job="$job"}`})
	return d
}
