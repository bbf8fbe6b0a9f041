package main

// sidecars shows `stoa sidecar`, which stands beside applications.
func sidecars() *dashboard {
	d := newDashboard("stoa-sidecars", "stoa / Sidecars")
	d.Templating.List[1].Label = "sidecars"
	d.Templating.List[1].Query = "label_values(stoa_sidecar_in_flight_requests, job)"

	d.graph("Calls", "ops", "Of local clients, by the result.",
		query{"{{code}}", `sum by (code) (rate(stoa_sidecar_handled_total{job="$job"}[$__rate_interval]))`})
	d.graph("Calls in progress", "short", "Of each sidecar, without streams that have no end of their own.",
		query{"{{instance}}", `stoa_sidecar_in_flight_requests{job="$job"}`})
	d.graph("Checks that failed", "ops", "Requests of /health and /readyz that found no cluster.",
		query{"{{instance}} {{page}}", `sum by (instance, page) (rate(stoa_sidecar_health_checks_total{job="$job", ok="false"}[$__rate_interval]))`})

	d.graph("Requests of a batch", "short", "The mean: the more, the less the servers work for each.",
		query{"{{instance}}", `rate(stoa_sidecar_session_requests_total{job="$job"}[$__rate_interval]) / (rate(stoa_sidecar_session_batches_total{job="$job"}[$__rate_interval]) > 0)`})
	d.graph("Requests outside of batches", "ops", "That could have been in one, but no session was open, or it was slow.",
		query{"{{instance}}", `rate(stoa_sidecar_unshared_requests_total{job="$job"}[$__rate_interval])`})
	d.number("Sessions with the cluster", "short", "One for reads and one for each partition, of each sidecar.",
		query{"sessions", `sum(stoa_sidecar_sessions{job="$job"})`})

	d.graph("Watches", "short", "Of local clients, those at members that they follow, and those that catch up, each by one of its own.",
		query{"of clients", `sum(stoa_sidecar_watchers{job="$job"})`},
		query{"at members", `sum(stoa_sidecar_upstream_watchers{job="$job"})`},
		query{"behind", `sum(stoa_sidecar_catching_up_watchers{job="$job"})`})
	d.graph("Events", "ops", "Received from members, and responses sent to clients.",
		query{"events received", `sum(rate(stoa_sidecar_watch_upstream_events_total{job="$job"}[$__rate_interval]))`},
		query{"responses sent", `sum(rate(stoa_sidecar_watch_responses_total{job="$job"}[$__rate_interval]))`})
	d.graph("Broken streams of watches", "ops", "To members. Clients see a delay.",
		query{"{{instance}}", `rate(stoa_sidecar_watch_stream_failures_total{job="$job"}[$__rate_interval])`})

	d.graph("Cached reads", "ops", "Answered from memory, by level, and those of cached prefixes that a member had to answer.",
		query{"{{level}}", `sum by (level) (rate(stoa_sidecar_cache_reads_total{job="$job"}[$__rate_interval]))`},
		query{"forwarded", `sum(rate(stoa_sidecar_cache_forwarded_reads_total{job="$job"}[$__rate_interval]))`},
		query{"questions to the cluster", `sum(rate(stoa_sidecar_cache_questions_total{job="$job"}[$__rate_interval]))`})
	d.graph("Memory of cached prefixes", "bytes", "Of the sidecar that needs most.",
		query{"{{prefix}}", `max by (prefix) (stoa_sidecar_cache_bytes{job="$job"})`})
	d.graph("Cached prefixes", "short", "Sidecars that can answer reads of a prefix, those whose memory is too small for it, and its keys.",
		query{"{{prefix}} served by", `sum by (prefix) (stoa_sidecar_cache_serving{job="$job"})`},
		query{"{{prefix}} too large for", `sum by (prefix) (stoa_sidecar_cache_too_large{job="$job"})`},
		query{"{{prefix}} keys", `max by (prefix) (stoa_sidecar_cache_keys{job="$job"})`})

	d.graph("Keep-alives", "ops", "Answers to local clients, and renewals at members.",
		query{"answers", `sum(rate(stoa_sidecar_keepalive_responses_total{job="$job"}[$__rate_interval]))`},
		query{"renewals", `sum(rate(stoa_sidecar_lease_renewals_total{job="$job"}[$__rate_interval]))`})
	d.graph("Processor", "percentunit", "Cores that each sidecar uses.",
		query{"{{instance}}", `rate(process_cpu_seconds_total{job="$job"}[$__rate_interval])`})
	d.graph("Memory", "bytes", "Resident, of each sidecar.",
		query{"{{instance}}", `process_resident_memory_bytes{job="$job"}`})
	return d
}
