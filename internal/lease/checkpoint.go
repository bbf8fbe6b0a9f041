package lease

import "time"

// Checkpoint says how much of a lease remains, in seconds, 0 for all of it.
type Checkpoint struct {
	ID, Remaining int64
	Number        uint64 // the lease's
}

func (t *timer) checkpoint(remaining int64) Checkpoint { return Checkpoint{t.id, remaining, t.number} }

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
		if seconds(remaining) >= t.ttl {
			continue // rounds up to all of it: no checkpoint
		}
		t.issued++
		out = append(out, t.checkpoint(remaining))
	}
	return out
}
