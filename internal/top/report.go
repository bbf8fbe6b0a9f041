package top

import (
	"cmp"
	"slices"
	"time"
)

// Report is what is shown. All lists are sorted, the most loaded first, but the servers: the
// leader is the first, and the others are in the order of their names.
type Report struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"` // that rates are over; 0: there are none
	Cluster uint64    `json:"cluster_id"`
	Moving  bool      `json:"moving"` // keys are on their way between partitions

	Revision int64 `json:"revision"`
	Keys     int64 `json:"keys"`
	Leases   int64 `json:"leases"`
	Sessions int64 `json:"sessions"`
	Watches  int64 `json:"watches"` // of all servers

	Alarms     []Alarm           `json:"alarms"`
	Trouble    []string          `json:"trouble"`
	Servers    []ServerReport    `json:"servers"`
	Partitions []PartitionReport `json:"partitions"`
	Slots      []SlotReport      `json:"slots"`
	Prefixes   []PrefixReport    `json:"prefixes"`
	Extensions []ExtensionReport `json:"extensions"`
}

// ServerReport is of one member. Rates are per second, and nil if they aren't known.
type ServerReport struct {
	ID      uint64  `json:"member_id"`
	Name    string  `json:"name"`
	State   string  `json:"state"` // leader, follower, learner, unknown
	Trouble string  `json:"trouble,omitempty"`
	Release string  `json:"release,omitempty"`
	Load    float64 `json:"load"` // of its busiest loop; 1 is all of the time

	Puts    *float64 `json:"puts_per_second"`
	Deletes *float64 `json:"deletes_per_second"`
	Ranges  *float64 `json:"ranges_per_second"`
	Txns    *float64 `json:"txns_per_second"`
	Events  *float64 `json:"events_per_second"`

	Watches     int64 `json:"watches"`
	SlowWatches int64 `json:"slow_watches"`
	FileBytes   int64 `json:"file_bytes"`
	LogBytes    int64 `json:"log_bytes"`
}

// unknown is the state of a server that doesn't answer.
const unknown = "unknown"

// PartitionReport is of one partition of the leader.
type PartitionReport struct {
	Partition int     `json:"partition"`
	Load      float64 `json:"load"`
	Keys      int64   `json:"keys"`
	Bytes     int64   `json:"bytes"`
	Slots     uint32  `json:"slots"` // 0 if it isn't known
}

// SlotReport is of one slot, with the hottest of its prefixes.
type SlotReport struct {
	Slot      uint32  `json:"slot"`
	Partition int     `json:"partition"`
	Load      float64 `json:"load"`
	Prefix    string  `json:"prefix"`
}

// PrefixReport is of one placement prefix.
type PrefixReport struct {
	Prefix    string  `json:"prefix"`
	Partition int     `json:"partition"`
	Load      float64 `json:"load"`
}

// ExtensionReport is of one extension, on the leader: every server runs every call.
type ExtensionReport struct {
	Name     string   `json:"name"`
	Disabled bool     `json:"disabled"`
	Calls    *float64 `json:"calls_per_second"`
	Steps    *float64 `json:"steps_per_second"`
	Writes   *float64 `json:"writes_per_second"`
	Errors   *float64 `json:"errors_per_second"`
}

// Compare reports a sample, with rates since an earlier one, which may be nil.
func Compare(before, now *Sample) *Report {
	r := &Report{
		Time: now.Time, Cluster: now.Cluster, Trouble: append([]string{}, now.Trouble...), Alarms: []Alarm{}, Servers: []ServerReport{},
		Partitions: []PartitionReport{}, Slots: []SlotReport{}, Prefixes: []PrefixReport{}, Extensions: []ExtensionReport{},
	}
	if before != nil {
		r.Seconds = max(0, now.Time.Sub(before.Time).Seconds())
	} else {
		before = &Sample{}
	}
	if s := now.first(); s != nil {
		n := s.Numbers
		r.Revision, r.Keys, r.Leases, r.Sessions, r.Moving = n.Revision, n.Keys, n.Leases, n.Sessions, n.Moving
		r.Alarms = append(r.Alarms, n.Alarms...)
		r.extensions(numbersOf(before, s.ID), n)
		r.loops(n)
	}
	for i := range now.Servers {
		s := &now.Servers[i]
		r.Servers = append(r.Servers, r.server(s, numbersOf(before, s.ID)))
		if s.Numbers != nil {
			r.Watches += s.Numbers.Watches
		}
	}
	slices.SortStableFunc(r.Servers, func(a, b ServerReport) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	r.partitions(now)
	return r
}

func rank(state string) int {
	if state == "leader" {
		return 0
	}
	return 1
}

func numbersOf(s *Sample, id uint64) *Numbers {
	if s := s.server(id); s != nil {
		return s.Numbers
	}
	return nil
}

// rate is that of a counter of which there is an earlier value.
func (r *Report) rate(before, now float64) *float64 {
	if r.Seconds <= 0 || now < before {
		return nil
	}
	v := (now - before) / r.Seconds
	return &v
}

func (r *Report) server(s *Server, before *Numbers) ServerReport {
	n := s.Numbers
	if n == nil {
		return ServerReport{ID: s.ID, Name: s.Name, State: unknown, Trouble: s.Trouble}
	}
	row := ServerReport{
		ID: s.ID, Name: s.Name, State: "follower", Release: n.Release,
		Watches: n.Watches, SlowWatches: n.SlowWatches, FileBytes: n.FileBytes, LogBytes: n.LogBytes,
	}
	switch {
	case n.Leader:
		row.State = "leader"
	case n.Learner:
		row.State = "learner"
	}
	for _, l := range n.Loops {
		row.Load = max(row.Load, l.Load)
	}
	if before != nil {
		row.Puts, row.Deletes, row.Ranges = r.rate(before.Puts, n.Puts), r.rate(before.Deletes, n.Deletes), r.rate(before.Ranges, n.Ranges)
		row.Txns, row.Events = r.rate(before.Txns, n.Txns), r.rate(before.Events, n.Events)
	}
	return row
}

// extensions reports those that are registered; one that has just been registered has no rates.
func (r *Report) extensions(before, now *Numbers) {
	earlier := map[string]*Extension{}
	if before != nil {
		for i := range before.Extensions {
			earlier[before.Extensions[i].Name] = &before.Extensions[i]
		}
	}
	for _, e := range now.Extensions {
		row := ExtensionReport{Name: e.Name, Disabled: e.Disabled}
		if b := earlier[e.Name]; b != nil {
			row.Calls, row.Steps = r.rate(b.Calls, e.Calls), r.rate(b.Steps, e.Steps)
			row.Writes, row.Errors = r.rate(b.Writes, e.Writes), r.rate(b.Errors, e.Errors)
		}
		r.Extensions = append(r.Extensions, row)
	}
	slices.SortStableFunc(r.Extensions, func(a, b ExtensionReport) int {
		return cmp.Or(cmp.Compare(known(b.Steps), known(a.Steps)), cmp.Compare(known(b.Calls), known(a.Calls)))
	})
}

func known(rate *float64) float64 {
	if rate == nil {
		return 0
	}
	return *rate
}

// loops reports what metrics alone tell of the partitions.
func (r *Report) loops(n *Numbers) {
	for p, l := range n.Loops {
		r.Partitions = append(r.Partitions, PartitionReport{Partition: p, Load: l.Load, Keys: l.Keys, Bytes: l.Bytes})
	}
}

// partitions reports those of the leader, in the place of what metrics tell.
func (r *Report) partitions(now *Sample) {
	if list := now.Partitions; list != nil {
		r.Partitions, r.Moving = []PartitionReport{}, list.GetMoving()
		for _, p := range list.GetPartitions() {
			id := int(p.GetId())
			r.Partitions = append(r.Partitions, PartitionReport{Partition: id, Load: p.GetLoad(), Keys: p.GetKeys(), Bytes: p.GetBytes(), Slots: p.GetSlots()})
			for _, s := range p.GetHottestSlots() {
				r.Slots = append(r.Slots, SlotReport{Slot: s.GetSlot(), Partition: id, Load: s.GetLoad(), Prefix: string(s.GetPrefix())})
			}
			for _, h := range p.GetHottest() {
				r.Prefixes = append(r.Prefixes, PrefixReport{Prefix: string(h.GetPrefix()), Partition: id, Load: h.GetLoad()})
			}
		}
	}
	slices.SortStableFunc(r.Partitions, func(a, b PartitionReport) int { return cmp.Compare(b.Load, a.Load) })
	slices.SortStableFunc(r.Slots, func(a, b SlotReport) int { return cmp.Compare(b.Load, a.Load) })
	slices.SortStableFunc(r.Prefixes, func(a, b PrefixReport) int { return cmp.Compare(b.Load, a.Load) })
}
