package compose

import (
	"cmp"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// joiner makes home's events of those of a mirror. It is a pure state machine without a clock;
// its inputs are the responses of two watches of the target, of the keys and of the mark,
// which come in no order among each other.
//
// A worker writes the mark in each transaction, so events of the keys at a revision of the
// target belong to the mark of the same revision. Stamps tell what a put is at home; a deletion
// has none, and is of the mark's revision, since a worker has no later ones behind it in one
// transaction (mirror.Config.EveryChange). Each mark names the one before (mirror.Mark.After),
// so that a gap is found: after a copy, or in a target that was restored.
//
// It ends with errBroken where it can't know home's events. done is the revision of home up
// to which all were returned; the watch goes on at home behind it.
type joiner struct {
	after  int64 // revision of the mark before the next one
	done   int64
	marks  []markAt
	latest int64 // revision of the target of the latest mark
	events []*clientv3.Event
	broken int64 // revision of the target from which on there is a gap, 0: none
}

type markAt struct {
	at int64 // revision of the target
	mirror.Mark
}

var errBroken = errors.New("the mirror doesn't tell all events")

// marked takes an event of the mark.
func (j *joiner) marked(e *clientv3.Event) {
	at := e.Kv.ModRevision
	if j.broken != 0 {
		return
	}
	j.latest = at
	m, err := mirror.ParseMark(e.Kv.Value)
	if err != nil || e.Type == clientv3.EventTypeDelete || m.Phase != mirror.At && m.Phase != mirror.Partial || m.After != j.after {
		j.broken = at
		return
	}
	if m.Phase == mirror.At {
		j.after = m.Revision
	}
	j.marks = append(j.marks, markAt{at, m})
}

// changed takes events of the keys.
func (j *joiner) changed(events []*clientv3.Event) { j.events = append(j.events, events...) }

// complete takes a revision of the target up to which both watches have had all events.
func (j *joiner) complete(at int64) {
	if len(j.events) > 0 {
		return // it is known with the next ones
	}
	for len(j.marks) > 0 && j.marks[0].at <= at {
		if j.marks[0].Phase == mirror.At {
			j.done = j.marks[0].Revision
		}
		j.marks = j.marks[1:]
	}
}

// take returns the events of home that are known now, in order.
func (j *joiner) take() (out []*clientv3.Event, err error) {
	for len(j.events) > 0 {
		at := j.events[0].Kv.ModRevision
		if j.broken != 0 && at >= j.broken {
			return out, errBroken
		}
		if j.broken == 0 && at > j.latest {
			return out, nil
		}
		for len(j.marks) > 0 && j.marks[0].at < at {
			j.marks = j.marks[1:]
		}
		// A revision in several transactions is rare: home has it in one.
		if len(j.marks) == 0 || j.marks[0].at != at || j.marks[0].Phase != mirror.At {
			j.broken = at
			return out, errBroken
		}
		n := 1
		for n < len(j.events) && j.events[n].Kv.ModRevision == at {
			n++
		}
		group := j.events[:n:n]
		j.events = j.events[n:]
		for _, e := range group {
			if err := unstampEvent(e, j.marks[0].Revision); err != nil {
				j.broken = at
				return out, errBroken
			}
		}
		slices.SortStableFunc(group, func(a, b *clientv3.Event) int { return cmp.Compare(a.Kv.ModRevision, b.Kv.ModRevision) })
		out = append(out, group...)
		j.done = j.marks[0].Revision
	}
	if j.broken != 0 {
		return out, errBroken
	}
	return out, nil
}

// unstampEvent makes an event of home of one of the mirror.
func unstampEvent(e *clientv3.Event, deletedAt int64) error {
	if e.PrevKv != nil {
		if err := mirrored.Unstamp(e.PrevKv); err != nil {
			return err
		}
	}
	if e.Type == clientv3.EventTypeDelete {
		e.Kv.ModRevision = deletedAt
		return nil
	}
	return mirrored.Unstamp(e.Kv)
}
