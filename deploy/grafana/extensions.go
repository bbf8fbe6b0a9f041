package main

// extensions shows the load that clients bring in other ways than by unary requests, and quotas.
func extensions() *dashboard {
	d := newDashboard("stoa-extensions", "stoa / Extensions and sessions")
	d.graph("Extension calls", "ops", "Calls of the handlers of each extension, once for the cluster: every member makes them all.",
		query{"{{extension}}", `max by (extension) (rate(stoa_extension_calls_total{job="$job"}[$__rate_interval]))`})
	d.graph("Failed calls", "ops", "At a limit, by an error of the script, or for want of space.",
		query{"{{extension}} {{reason}}", `max by (extension, reason) (rate(stoa_extension_errors_total{job="$job"}[$__rate_interval]))`})
	d.graph("Duration of calls, p99", "s", "The partition waits meanwhile.",
		query{"{{extension}}", `job_extension:stoa_extension_duration_seconds:p99_5m{job="$job"}`})

	d.graph("Steps of a call", "short", "The mean.",
		query{"{{extension}}", `max by (extension) (rate(stoa_extension_steps_total{job="$job"}[$__rate_interval]) / (rate(stoa_extension_calls_total{job="$job"}[$__rate_interval]) > 0))`})
	d.graph("Keys written", "ops", "By the calls of each extension.",
		query{"{{extension}}", `max by (extension) (rate(stoa_extension_writes_total{job="$job"}[$__rate_interval]))`})
	d.number("Extensions", "short", "Registered ones, and those that are disabled.",
		query{"registered", `count(max by (extension) (stoa_extension_registered{job="$job"}))`},
		query{"disabled", `sum(max by (extension) (stoa_extension_disabled{job="$job"}))`})

	d.graph("Sessions", "short", "Open sessions, at most 100,000, and leases: each session has one.",
		query{"sessions", `max(stoa_sessions{job="$job"})`},
		query{"leases", `max(stoa_leases{job="$job"})`})
	d.graph("Session streams", "short", "Streams of sessions that are connected to each member.",
		query{"{{instance}}", `sum by (instance) (grpc_server_started_total{job="$job", grpc_service="stoa.v1.Sessions"}) - sum by (instance) (grpc_server_handled_total{job="$job", grpc_service="stoa.v1.Sessions"})`})
	d.graph("Leases", "ops", "Granted, renewed and expired.",
		query{"granted", `max(rate(etcd_debugging_lease_granted_total{job="$job"}[$__rate_interval]))`},
		query{"renewed", `sum(rate(etcd_debugging_lease_renewed_total{job="$job"}[$__rate_interval]))`},
		query{"expired", `sum(rate(etcd_debugging_server_lease_expired_total{job="$job"}[$__rate_interval]))`})

	d.graph("Watchers", "short", "Watches on each member, and those that catch up from history.",
		query{"{{instance}}", `etcd_debugging_mvcc_watcher_total{job="$job"}`},
		query{"{{instance}} behind", `etcd_debugging_mvcc_slow_watcher_total{job="$job"}`})
	d.graph("Quotas", "percentunit", "Part of its quota of keys and bytes that a role or a prefix uses.",
		query{"{{kind}} {{tenant}} keys", `max by (kind, tenant) (stoa_tenant_keys{job="$job"} / stoa_tenant_max_keys{job="$job"})`},
		query{"{{kind}} {{tenant}} bytes", `max by (kind, tenant) (stoa_tenant_bytes{job="$job"} / stoa_tenant_max_bytes{job="$job"})`})
	d.graph("Refused by quotas", "ops", "Watches and requests beyond a quota of watches or of requests per second.",
		query{"{{kind}} {{tenant}} watches", `sum by (kind, tenant) (rate(stoa_tenant_refused_watchers_total{job="$job"}[$__rate_interval]))`},
		query{"{{kind}} {{tenant}} requests", `sum by (kind, tenant) (rate(stoa_tenant_refused_requests_total{job="$job"}[$__rate_interval]))`})
	return d
}
