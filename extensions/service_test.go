package extensions

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// service is a server of one client in memory: keys, one extension, and what the apply
// loop does around it.
type service struct {
	e      *extension.Extension
	reg    *extension.Registry
	keys   map[string]kvwire.KeyValue
	rev    int64
	leases map[int64]bool
}

func newService(name string) *service {
	e, err := extension.Compile(name, []byte(Source(name)), 1, extension.Defaults)
	if err != nil {
		panic(err)
	}
	return &service{
		e: e, reg: extension.New(extension.Defaults, []*extension.Extension{e}),
		keys: map[string]kvwire.KeyValue{}, rev: 1, leases: map[int64]bool{},
	}
}

func (s *service) Get(key []byte) kvwire.KeyValue { return s.keys[string(key)] }

func (s *service) Range(key, end []byte, limit int) []kvwire.KeyValue {
	var list []kvwire.KeyValue
	for k, kv := range s.keys {
		if k >= string(key) && k < string(end) {
			list = append(list, kv)
		}
	}
	sort.Slice(list, func(i, j int) bool { return bytes.Compare(list[i].Key(), list[j].Key()) < 0 })
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list
}

func (s *service) Count(key, end []byte) int { return len(s.Range(key, end, 0)) }

func (s *service) HasLease(_ []byte, id int64) bool { return s.leases[id] }

func (s *service) Permits(_, _ []byte, _ bool) bool { return true }

// do carries out one request: by the extension if it subscribes to it.
func (s *service) do(r *extension.Request) (*extension.Outcome, error) {
	handled := len(s.reg.Operation(r.Op, r.Key, r.RangeEnd)) > 0
	var writes []extension.Write
	out := &extension.Outcome{}
	switch {
	case handled:
		var err error
		if out, err = s.e.Operation(s, &extension.Defaults, s.rev+1, r, nil); err != nil {
			return nil, err
		}
		writes = out.Writes
	case r.Op == extension.Put:
		writes = []extension.Write{{Key: r.Key, Kv: kvwire.Make(r.Key, r.Value, kvwire.Fields{Lease: r.Lease})}}
	case r.Op == extension.Delete && s.Get(r.Key).Exists():
		writes = []extension.Write{{Key: r.Key, Delete: true}}
		out.Deleted = 1
	case r.Op == extension.Read && s.Get(r.Key).Exists():
		out.Kvs = []*mvccpb.KeyValue{s.Get(r.Key).Message()}
	}
	return out, s.commit(writes, extension.Deleted)
}

// expire ends a lease.
func (s *service) expire(lease int64) error {
	delete(s.leases, lease)
	var writes []extension.Write
	for _, kv := range s.Range(nil, []byte{0xff}, 0) {
		if kv.Lease() == lease {
			writes = append(writes, extension.Write{Key: kv.Key(), Delete: true})
		}
	}
	return s.commit(writes, extension.Expired)
}

// commit makes the writes and runs the events that follow, all at one revision.
func (s *service) commit(writes []extension.Write, gone extension.EventType) error {
	if len(writes) == 0 {
		return nil
	}
	s.rev++
	events := s.write(writes, gone)
	for len(events) > 0 {
		ev := events[0]
		events = events[1:]
		if len(s.reg.Events(ev.Type, ev.Kv.Key())) == 0 {
			continue
		}
		out, err := s.e.Event(s, &extension.Defaults, s.rev, ev, nil)
		if err != nil {
			return err
		}
		events = append(events, s.write(out.Writes, extension.Deleted)...)
	}
	return nil
}

func (s *service) write(writes []extension.Write, gone extension.EventType) []*extension.Event {
	var events []*extension.Event
	for _, w := range writes {
		old := s.keys[string(w.Key)]
		ev := &extension.Event{Type: gone, Kv: kvwire.Tombstone(w.Key), Prev: old}
		if w.Delete {
			delete(s.keys, string(w.Key))
		} else {
			ev.Type = extension.Modified
			f := kvwire.Fields{Lease: w.Kv.Lease(), ModRevision: s.rev, CreateRevision: s.rev, Version: 1}
			if !old.Exists() {
				ev.Type = extension.Created
			} else {
				f.CreateRevision, f.Version = old.CreateRevision(), old.Version()+1
			}
			ev.Kv = kvwire.Make(w.Key, w.Kv.Value(), f)
			s.keys[string(w.Key)] = ev.Kv
		}
		events = append(events, ev)
	}
	return events
}

// say formats a client's answer.
func (s *service) say(r *extension.Request, out *extension.Outcome) string {
	var words []string
	if r.Op == extension.Delete {
		words = append(words, fmt.Sprint(out.Deleted))
	}
	for _, kv := range out.Kvs {
		words = append(words, fmt.Sprintf("%s=%s", kv.Key, kv.Value))
	}
	if out.Block != nil {
		if kv := s.Get(out.Block); kv.Exists() {
			words = append(words, fmt.Sprintf("at once %s=%s", kv.Key(), kv.Value()))
		} else {
			words = append(words, fmt.Sprintf("waits for %s", out.Block))
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// list shows the keys.
func (s *service) list() string {
	var lines []string
	for k, kv := range s.keys {
		line := fmt.Sprintf("%s=%s", k, kv.Value())
		if kv.Lease() != 0 {
			line += fmt.Sprintf(" (lease %x)", kv.Lease())
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
