package metrics

import "github.com/prometheus/client_golang/prometheus"

// MaxTenants bounds how many quotas are shown.
const MaxTenants = 100

// Tenant is a quota, and what is used of it; a limit of 0 is none. Watchers and refusals are
// those of this server.
type Tenant struct {
	Kind, Name                     string // role or prefix
	Bytes, Keys, Watchers          int64
	MaxBytes, MaxKeys, MaxWatchers int64
	MaxRate                        int64 // requests per second
	// Since the quota was set.
	RefusedWatchers, RefusedRequests int64
}

// tenantLine is a metric of a tenant.
type tenantLine struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	of    func(t *Tenant) int64
	limit func(t *Tenant) int64 // it is shown if there is this limit; nil: always
}

var tenantLines = []tenantLine{
	tenantGauge("bytes", "Bytes of the keys, and their values, of a role or prefix that has a quota.", func(t *Tenant) int64 { return t.Bytes }, nil),
	tenantGauge("keys", "Keys of a role or prefix that has a quota.", func(t *Tenant) int64 { return t.Keys }, nil),
	tenantGauge("watchers", "Watches open on this server that count for the quota.", func(t *Tenant) int64 { return t.Watchers }, maxWatchers),
	tenantGauge("max_bytes", "The limit of its bytes.", maxBytes, maxBytes),
	tenantGauge("max_keys", "The limit of its keys.", maxKeys, maxKeys),
	tenantGauge("max_watchers", "The limit of its watches on each server.", maxWatchers, maxWatchers),
	tenantGauge("max_rate", "The limit of its requests per second on each server.", maxRate, maxRate),
	{tenantDesc("refused_watchers_total", "Watches that this server has refused because of the quota."), prometheus.CounterValue, func(t *Tenant) int64 { return t.RefusedWatchers }, maxWatchers},
	{tenantDesc("refused_requests_total", "Requests that this server has refused because of the quota's rate."), prometheus.CounterValue, func(t *Tenant) int64 { return t.RefusedRequests }, maxRate},
}

func maxBytes(t *Tenant) int64    { return t.MaxBytes }
func maxKeys(t *Tenant) int64     { return t.MaxKeys }
func maxWatchers(t *Tenant) int64 { return t.MaxWatchers }
func maxRate(t *Tenant) int64     { return t.MaxRate }

func tenantGauge(name, help string, of, limit func(t *Tenant) int64) tenantLine {
	return tenantLine{tenantDesc(name, help), prometheus.GaugeValue, of, limit}
}

func tenantDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("stoa_tenant_"+name, help, []string{"kind", "tenant"}, nil)
}

func collectTenants(list []Tenant, out chan<- prometheus.Metric) {
	for i := range list {
		for _, l := range tenantLines {
			if l.limit == nil || l.limit(&list[i]) > 0 {
				out <- prometheus.MustNewConstMetric(l.desc, l.kind, float64(l.of(&list[i])), list[i].Kind, list[i].Name)
			}
		}
	}
}
