package metrics

import "github.com/prometheus/client_golang/prometheus"

// MaxTenants bounds how many quotas are shown.
const MaxTenants = 100

// Tenant is a quota, and what is used of it; a limit of 0 is none.
type Tenant struct {
	Kind, Name                     string // role or prefix
	Bytes, Keys, MaxBytes, MaxKeys int64
}

var tenantLines = []struct {
	desc  *prometheus.Desc
	limit bool
	of    func(t *Tenant) int64
}{
	{tenantDesc("bytes", "Bytes of the keys, and their values, of a role or prefix that has a quota."), false, func(t *Tenant) int64 { return t.Bytes }},
	{tenantDesc("keys", "Keys of a role or prefix that has a quota."), false, func(t *Tenant) int64 { return t.Keys }},
	{tenantDesc("max_bytes", "The limit of its bytes."), true, func(t *Tenant) int64 { return t.MaxBytes }},
	{tenantDesc("max_keys", "The limit of its keys."), true, func(t *Tenant) int64 { return t.MaxKeys }},
}

func tenantDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("stoa_tenant_"+name, help, []string{"kind", "tenant"}, nil)
}

func collectTenants(list []Tenant, out chan<- prometheus.Metric) {
	for i := range list {
		for _, l := range tenantLines {
			if v := l.of(&list[i]); v > 0 || !l.limit {
				out <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(v), list[i].Kind, list[i].Name)
			}
		}
	}
}
