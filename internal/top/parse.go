package top

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Parse reads what a server shows on /metrics.
func Parse(r io.Reader) (*Numbers, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	f := families(all)
	n := &Numbers{
		Leader: f.one("etcd_server_is_leader") > 0, Learner: f.one("etcd_server_is_learner") > 0, Moving: f.one("stoa_keys_moving") > 0,
		Revision: int64(f.one("etcd_debugging_mvcc_current_revision")), Keys: int64(f.one("etcd_debugging_mvcc_keys_total")),
		Leases: int64(f.one("stoa_leases")), Sessions: int64(f.one("stoa_sessions")),
		Watches: int64(f.one("etcd_debugging_mvcc_watcher_total")), SlowWatches: int64(f.one("etcd_debugging_mvcc_slow_watcher_total")),
		FileBytes: int64(f.one("etcd_mvcc_db_total_size_in_bytes")), LogBytes: int64(f.one("stoa_wal_bytes")),
		Puts: f.one("etcd_mvcc_put_total"), Deletes: f.one("etcd_mvcc_delete_total"), Ranges: f.one("etcd_mvcc_range_total"),
		Txns: f.one("etcd_mvcc_txn_total"), Events: f.one("etcd_debugging_mvcc_events_total"),
		Loops: f.loops(), Extensions: f.extensions(),
	}
	if err := f.identify(n); err != nil {
		return nil, err
	}
	return n, nil
}

// families are metrics by their names.
type families map[string]*dto.MetricFamily

func (f families) one(name string) (sum float64) {
	for m := range f.each(name) {
		sum += valueOf(m)
	}
	return sum
}

// each goes through the series of a name.
func (f families) each(name string) func(func(*dto.Metric) bool) {
	return slices.Values(f[name].GetMetric())
}

// valueOf is that of a gauge, a counter, or of neither: only one of them isn't 0.
func valueOf(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// identify says which server it is, its release and the alarms that it knows of.
func (f families) identify(n *Numbers) error {
	self := ""
	for m := range f.each("etcd_server_id") {
		self = label(m, "server_id")
	}
	if self == "" {
		return errors.New("these metrics are no stoa server's: etcd_server_id is missing")
	}
	id, err := strconv.ParseUint(self, 16, 64)
	if err != nil {
		return fmt.Errorf("reading metrics: the server's ID: %w", err)
	}
	n.ID = id
	for m := range f.each("stoa_member_version") {
		if label(m, "member") == self {
			n.Release = label(m, "version")
		}
	}
	for m := range f.each("etcd_debugging_server_alarms") {
		n.Alarms = append(n.Alarms, Alarm{label(m, "server_id"), label(m, "alarm_type")})
	}
	slices.SortFunc(n.Alarms, func(a, b Alarm) int { return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Type, b.Type)) })
	return nil
}

// maxPartitions bounds what a wrong label can ask for.
const maxPartitions = 1024

func (f families) loops() (list []Loop) {
	at := func(name string, set func(*Loop, float64)) {
		for m := range f.each("stoa_partition_" + name) {
			p, err := strconv.Atoi(label(m, "partition"))
			if err != nil || p < 0 || p >= maxPartitions {
				continue
			}
			for len(list) <= p {
				list = append(list, Loop{})
			}
			set(&list[p], valueOf(m))
		}
	}
	at("load", func(l *Loop, v float64) { l.Load = v })
	at("keys", func(l *Loop, v float64) { l.Keys = int64(v) })
	at("bytes", func(l *Loop, v float64) { l.Bytes = int64(v) })
	return list
}

// extensions are those that are registered, by name.
func (f families) extensions() []Extension {
	byName := map[string]*Extension{}
	for m := range f.each("stoa_extension_registered") {
		name := label(m, "extension")
		byName[name] = &Extension{Name: name}
	}
	add := func(name string, to func(*Extension) *float64) {
		for m := range f.each("stoa_extension_" + name) {
			if e := byName[label(m, "extension")]; e != nil {
				*to(e) += valueOf(m)
			}
		}
	}
	add("calls_total", func(e *Extension) *float64 { return &e.Calls })
	add("steps_total", func(e *Extension) *float64 { return &e.Steps })
	add("writes_total", func(e *Extension) *float64 { return &e.Writes })
	add("errors_total", func(e *Extension) *float64 { return &e.Errors }) // of all reasons
	for m := range f.each("stoa_extension_disabled") {
		if e := byName[label(m, "extension")]; e != nil {
			e.Disabled = valueOf(m) > 0
		}
	}
	var list []Extension
	for _, e := range byName {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Extension) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
