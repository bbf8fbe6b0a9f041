package worker

import "time"

// lag tells since when a target lacks a revision of its home. It has no clock.
type lag struct {
	seen []sighting // in the order of both; all of them are missing in the target
}

// sighting is the first time at which home was seen at a revision.
type sighting struct {
	revision int64
	at       time.Time
}

// most bounds the sightings of a target that is far behind: later ones make no difference
// until it has the first.
const most = 1024

// look takes what home and target are at, and returns the lag. It is never too long, and
// too short by the time between two looks at most.
func (l *lag) look(now time.Time, home, target int64) time.Duration {
	if n := len(l.seen); home > target && n < most && (n == 0 || l.seen[n-1].revision < home) {
		l.seen = append(l.seen, sighting{home, now})
	}
	for len(l.seen) > 0 && l.seen[0].revision <= target {
		l.seen = l.seen[1:]
	}
	if len(l.seen) == 0 || home <= target {
		l.seen = nil
		return 0
	}
	return now.Sub(l.seen[0].at)
}
