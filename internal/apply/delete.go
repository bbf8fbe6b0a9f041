package apply

import (
	"bytes"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

func (x *execution) deleteRangeCommand(req *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	x.about = req.GetKey()
	if err := x.permit(req); err != nil {
		return nil, err
	}
	if x.undecided(extension.Delete, req.GetKey(), req.GetRangeEnd()) {
		return nil, fault.Moved
	}
	if role, name, _ := extension.Parse(req.GetKey()); role == extension.Ack && len(x.m.endOf(req.GetKey(), req.GetRangeEnd())) == 0 {
		req.Key, req.RangeEnd = extension.AckKey(name, x.client), nil
	}
	if err := x.keepsExtensions(req.GetKey(), req.GetRangeEnd()); err != nil {
		return nil, err
	}
	if err := x.fewRemovals(req); err != nil {
		return nil, err
	}
	if err := x.fewEvents(req); err != nil {
		return nil, err
	}
	x.deletion = deletionWork(req)
	return x.deleteRange(req), nil
}

// keepsExtensions refuses to delete an extension's owner without the extension, which
// every client could replace then, and limits without which the registered extensions
// don't fit.
func (x *execution) keepsExtensions(key, end []byte) error {
	if !extension.Touches(key, end) {
		return nil
	}
	reg := x.m.Extensions()
	// Its source comes before its owner: a range that has only the latter begins in between.
	for e := range reg.NamedLike(bytes.TrimPrefix(key, []byte(extension.Root))) {
		for _, k := range [...][]byte{e.OwnerKey(), extension.RegistrarKey(e.Name), extension.LanguageKey(e.Name)} {
			if within(k, key, end) && !within(extension.SourceKey(e.Name), key, end) {
				return fault.BadExtension.With(fmt.Sprintf("stoa: %s can't be deleted; delete %s to remove the extension",
					k, extension.SourceKey(e.Name)))
			}
		}
	}
	limits := []byte(extension.LimitsKey)
	if !within(limits, key, end) || !(view{x}).Get(limits).Exists() {
		return nil
	}
	err := reg.Hold(x.m.extensionBounds().Defaults, func(e *extension.Extension) bool { return within(extension.SourceKey(e.Name), key, end) })
	if err != nil {
		return fault.BadExtension.With(fmt.Sprintf("%v; without %s the limits are the defaults", err, limits))
	}
	return nil
}

// maxRemovals is how many extensions one command removes at most. Each takes some
// 20 µs: its keys, and its entries in the registry and in the map.
const maxRemovals = 250

// fewRemovals refuses to remove more extensions than one request may.
func (x *execution) fewRemovals(ranges ...*pb.DeleteRangeRequest) error {
	reg := x.m.Extensions()
	if reg.Len() <= maxRemovals {
		return nil
	}
	n := 0
	for _, r := range ranges {
		key, end := r.GetKey(), r.GetRangeEnd()
		if len(end) == 0 || !extension.Touches(key, end) {
			continue
		}
		for _, e := range reg.All() {
			if within(extension.SourceKey(e.Name), key, end) {
				n++
			}
		}
		if n > maxRemovals {
			return fault.TooMuchWork.With(fmt.Sprintf("stoa: a request can remove %d extensions, and this would remove %d: delete them in smaller ranges", maxRemovals, n))
		}
	}
	return nil
}

// fewEvents refuses to delete the keys of a range if their event handlers would take more steps
// than a request may even if they did nothing. React would refuse it as well, but to delete
// many keys and to take that back is work, too.
func (x *execution) fewEvents(req *pb.DeleteRangeRequest) error {
	reg := x.m.Extensions()
	if x.m.Level() < levelOfSmallSteps || len(req.GetRangeEnd()) == 0 || !reg.WakenByDeletion(req.GetKey(), req.GetRangeEnd()) {
		return nil
	}
	left := reg.Limits.EventSteps
	for _, kv := range x.newest(req.GetKey(), req.GetRangeEnd(), 0) {
		for _, e := range reg.Events(extension.Deleted, kv.Key()) {
			if x.tally(e).standing.Disabled {
				left -= passSteps
			} else {
				left -= runSteps
			}
		}
		if left < 0 {
			return fault.TooMuchWork.With(fmt.Sprintf("stoa: the event handlers of the keys to delete would take more than %d steps (event_steps in %s); "+
				"nothing was deleted: delete fewer keys at once", reg.Limits.EventSteps, extension.LimitsKey))
		}
	}
	return nil
}

// within tells whether a key lies in a range, which is written as in etcd's requests.
func within(k, key, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(k, key)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(k, key) >= 0
	}
	return bytes.Compare(k, key) >= 0 && bytes.Compare(k, end) < 0
}

// deleteRange deletes the keys of a range, in key order over all partitions, so
// that sub-revisions are as in etcd.
func (x *execution) deleteRange(req *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	kvs := x.newest(req.GetKey(), req.GetRangeEnd(), 0)
	for _, kv := range kvs {
		x.delete(kv.Key())
	}
	if !x.answers {
		return nil
	}
	resp := &pb.DeleteRangeResponse{Header: x.header(true), Deleted: int64(len(kvs))}
	if req.GetPrevKv() {
		resp.PrevKvs = kvwire.Messages(kvs)
	}
	return resp
}
