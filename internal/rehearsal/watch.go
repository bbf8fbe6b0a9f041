package rehearsal

import (
	"bytes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// watch is one that has been opened and stays open.
type watch struct {
	client   string
	key, end []byte
}

func (w *watch) wants(c Change) bool {
	if c.Hides != nil && c.Hides(w.client) {
		return false
	}
	key := c.Kv.Key()
	switch {
	case len(w.end) == 0:
		return bytes.Equal(key, w.key)
	case len(w.end) == 1 && w.end[0] == 0:
		return bytes.Compare(key, w.key) >= 0
	}
	return bytes.Compare(key, w.key) >= 0 && bytes.Compare(key, w.end) < 0
}

// Watch opens a watch from now on. If an extension handles it, the report has its
// answer: the watch may have become one of another key, and its first event may be
// there already.
func (r *Rehearsal) Watch(req *pb.WatchCreateRequest, c Caller) *Report {
	r.report = &Report{}
	p, handled := r.machine.PlanRead(command.Watch, req, func() (string, int64) { return c.Client, c.Lease })
	if handled {
		r.log(command.Watch, req, p)
	}
	report := r.finish()
	if report.Err != nil {
		return report
	}
	w := &watch{client: c.Client, key: req.GetKey(), end: req.GetRangeEnd()}
	if w.client == "" {
		w.client = apply.Anonymous
	}
	r.watches = append(r.watches, w)
	report.Watch = len(r.watches)
	if resp, ok := report.Response.(*pb.RangeResponse); ok && len(resp.GetKvs()) > 0 {
		kv := resp.GetKvs()[0]
		if w.key, w.end = kv.GetKey(), nil; kv.GetVersion() > 0 {
			report.Events = append(report.Events, Event{report.Watch, Change{store.Change{Kv: kvwire.Of(kv)}}})
		}
	}
	return report
}

// Watched is the current key or range of watch number n.
func (r *Rehearsal) Watched(n int) (key, end []byte) {
	w := r.watches[n-1]
	return w.key, w.end
}
