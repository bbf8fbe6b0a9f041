package lease

import "time"

// Checkpoint says how much of a lease remains, in seconds, 0 for all of it.
type Checkpoint struct{ ID, Remaining int64 }

// A lease is checkpointed when less than half of it is left, and then each
// eighth. A client that keeps its lease alive renews at a third, so it never
// costs a log entry; a lease that is not renewed costs at most five; and a
// change of leader prolongs a lease by at most half of it.
const (
	recordBelow = 2
	recordEach  = 8
	recordPause = time.Second // never more often, however short the lease
)

func (t *timer) firstRecord(now time.Time) time.Time {
	half := t.end.Add(-t.ttl / recordBelow)
	if half.Before(now) {
		// A new leader has taken over in the second half, and knows only the
		// table's value.
		return t.nextRecord(now)
	}
	return half
}

func (t *timer) nextRecord(now time.Time) time.Time {
	return now.Add(max(t.ttl/recordEach, recordPause))
}

// Checkpoints returns up to limit checkpoints that are due to be logged.
func (e *Expirer) Checkpoints(now time.Time, limit int) []Checkpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Checkpoint
	for len(out) < limit {
		t := e.records.due(now)
		if t == nil {
			break
		}
		left := t.end.Sub(now)
		if left <= 0 {
			e.records.drop(t) // it will be revoked
			continue
		}
		e.records.put(t, t.nextRecord(now))
		remaining := int64((left + time.Second - 1) / time.Second)
		all := seconds(remaining) >= t.ttl
		switch {
		case all && !t.mistaken:
			continue // rounds up to all of it: no checkpoint
		case all:
			remaining = 0
			e.records.put(t, t.firstRecord(now))
		}
		t.mistaken = false
		e.handOut(t)
		out = append(out, Checkpoint{ID: t.id, Remaining: remaining})
	}
	return out
}

// Issued is the number of the checkpoint that was handed out last.
func (e *Expirer) Issued() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.issued
}

// Recorded says that checkpoints have been applied, with what Issued was before others were handed out. It isn't called
// for those of which that isn't known: they may come behind the grant of another lease with the ID.
func (e *Expirer) Recorded(list []Checkpoint, issued uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range list {
		if e.open[c.ID] <= issued {
			delete(e.open, c.ID)
		}
	}
}
