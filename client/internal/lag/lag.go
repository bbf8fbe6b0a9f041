// Package lag tells since when something that follows is behind. It has no clock.
package lag

import "time"

// A Lag is that of one follower. Positions only go up, unless what is followed begins anew. The zero
// Lag is one that has seen nothing.
type Lag struct {
	seen []sighting // in the order of both; the follower is behind all of them
}

// sighting is the first time at which what is followed was seen at a position.
type sighting struct {
	position int64
	at       time.Time
}

// most bounds the sightings of a follower that is far behind: later ones make no difference
// until it has the first.
const most = 1024

// Look takes the positions of what is followed and of the follower, and returns the lag. It is never too
// long, and too short by the time between two looks at most.
func (l *Lag) Look(now time.Time, followed, follower int64) time.Duration {
	if n := len(l.seen); followed > follower && n < most && (n == 0 || l.seen[n-1].position < followed) {
		l.seen = append(l.seen, sighting{followed, now})
	}
	for len(l.seen) > 0 && l.seen[0].position <= follower {
		l.seen = l.seen[1:]
	}
	if len(l.seen) == 0 || followed <= follower {
		l.seen = nil
		return 0
	}
	return now.Sub(l.seen[0].at)
}
