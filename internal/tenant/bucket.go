package tenant

import (
	"math"
	"time"
)

// second is what a request takes out of a bucket, in billionths of a request. So each
// nanosecond adds the rate, without rounding.
const second = int64(time.Second)

// bucket admits requests at a rate, and one second's worth of them at once. It may be in debt:
// some requests can't be refused.
type bucket struct {
	rate  int64 // requests per second
	at    int64 // when it was filled last
	level int64 // in billionths of a request
}

func (b *bucket) full() int64 { return b.rate * second }

// fill adds what has come since it was filled last.
func (b *bucket) fill(now int64) {
	elapsed := max(now-b.at, 0)
	b.at = max(now, b.at)
	missing := b.full() - b.level
	if elapsed >= missing/b.rate+1 {
		b.level = b.full()
		return
	}
	b.level = min(b.full(), b.level+elapsed*b.rate)
}

// limit sets the rate. A new bucket is full; another one keeps its level, as far as that is
// possible.
func (b *bucket) limit(rate, now int64) {
	if b.rate == 0 {
		*b = bucket{rate: rate, at: now, level: rate * second}
		return
	}
	b.fill(now)
	b.rate = rate
	b.level = min(b.level, b.full())
}

// has reports whether there is enough for a request.
func (b *bucket) has() bool { return b.level >= second }

// take takes a request out, also where there isn't enough.
func (b *bucket) take() { b.level = max(b.level, math.MinInt64/2) - second }

// debt is the time until what is owed has come in.
func (b *bucket) debt() time.Duration {
	if b.level >= 0 {
		return 0
	}
	return time.Duration((-b.level + b.rate - 1) / b.rate)
}

// requests are those of about the last second: those that the bucket lacks.
func (b *bucket) requests() int64 { return (b.full() - b.level + second - 1) / second }
