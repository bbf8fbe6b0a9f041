package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// load foretells the work of extensions for a request that one of them handles, or whose
// changes wake their event handlers.
func (m *Machine) load(handler string, req proto.Message) (most Load) {
	reg := m.Extensions()
	if e := reg.Get(handler); e != nil {
		return Load{e.Name, e.Costs[extension.Call].Cost(throttle.Charged(reg.Limits.Steps, int64(reg.Limits.WriteBytes)))}
	}
	if !reg.HasEvents() {
		return Load{}
	}
	work, ok := workOf(req)
	if !ok {
		return Load{}
	}
	looked := 0
	add := func(e *extension.Extension) bool {
		c := e.Costs[work].Cost(throttle.Charged(reg.Limits.EventSteps, int64(reg.Limits.WriteBytes)))
		if most.Extension == "" || c.Likely > most.Likely || c.Likely == most.Likely && c.Most > most.Most {
			most.Extension = e.Name
		}
		most.Cost = most.Max(c)
		looked++
		return looked < maxReactions
	}
	var one [1]spot
	_, spots := m.subject(req, one[:0])
	for _, s := range spots {
		if s.written && !wakes(reg, s, add) {
			break
		}
	}
	return most
}

// workOf is the kind of a request that changes keys itself.
func workOf(req proto.Message) (extension.Work, bool) {
	switch r := req.(type) {
	case *pb.PutRequest:
		return extension.OnPut, true
	case *pb.DeleteRangeRequest:
		return deletionWork(r), true
	case *pb.TxnRequest:
		return extension.OnTxn, true
	}
	return 0, false
}

func deletionWork(r *pb.DeleteRangeRequest) extension.Work {
	if len(r.GetRangeEnd()) > 0 {
		return extension.OnDeleteRange
	}
	return extension.OnDelete
}

// wakes visits the extensions that are woken if a key is put or keys are deleted.
func wakes(reg *extension.Registry, s spot, visit func(*extension.Extension) bool) bool {
	if s.deleted {
		for e := range reg.DeletionsIn(s.key, s.end) {
			if !visit(e) {
				return false
			}
		}
		return true
	}
	if !reg.Concerns(s.key) {
		return true
	}
	for _, t := range [...]extension.EventType{extension.Created, extension.Modified} {
		for _, e := range reg.Events(t, s.key) {
			if !visit(e) {
				return false
			}
		}
	}
	return true
}

// toWrite is the size of the command's changes.
func (x *execution) toWrite() (bytes int64) {
	if x.local != several {
		for _, c := range x.changes[x.from:] {
			bytes += int64(c.Kv.Len())
		}
		return bytes
	}
	for _, changes := range x.spread {
		for _, c := range changes {
			bytes += int64(c.Kv.Len())
		}
	}
	return bytes
}

// noteWork notes the time and the steps that the extensions took for a command: for the one
// that handled it, or for those that its own changes woke.
func (x *execution) noteWork() {
	if x.working == 0 {
		return
	}
	ns, steps, bytes := x.worked-x.working, x.callSteps, x.toWrite()
	for _, t := range x.tallies {
		steps += t.steps
	}
	if x.handler != nil {
		x.handler.Costs[extension.Call].Note(ns, steps, bytes)
		return
	}
	work := extension.OnTxn
	switch x.asked {
	case command.Put:
		work = extension.OnPut
	case command.DeleteRange:
		work = x.deletion
	case command.Txn:
	default:
		return // the end of a lease
	}
	for _, t := range x.tallies {
		if t.direct {
			t.e.Costs[work].Note(ns, steps, bytes)
		}
	}
}
