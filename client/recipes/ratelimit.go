package recipes

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// RateLimiter grants a number of permits per period, to all clients together.
// The periods are counted by the clients' clocks, which should agree to a
// fraction of a period: one that is behind takes from the latest period that
// any client has begun, one that is ahead begins it early.
type RateLimiter struct {
	kv         handle
	root, name string
	period     time.Duration
	now        func() time.Time
}

// NewRateLimiter returns the rate limiter of a name. All its clients must give the same
// period, of at least a millisecond.
func NewRateLimiter(kv KV, root, name string, period time.Duration) *RateLimiter {
	return &RateLimiter{kv: handle{kv: kv}, root: rootOf("ratelimit", root), name: name, period: max(period, time.Millisecond), now: time.Now}
}

// SetLimit sets the number of permits per period. It must be called before the
// first Take.
func (r *RateLimiter) SetLimit(ctx context.Context, n int64) error {
	if _, err := r.kv.Put(ctx, r.root+"limit/"+r.name, strconv.FormatInt(n, 10)); err != nil {
		return fmt.Errorf("recipes: setting the limit of %s%s: %w", r.root, r.name, err)
	}
	return nil
}

// Take takes n permits of this period and returns how many remain, or that
// there aren't n; then it takes none.
func (r *RateLimiter) Take(ctx context.Context, n int64) (left int64, ok bool, err error) {
	if r.period <= 0 {
		return 0, false, fmt.Errorf("recipes: taking: %w", errNoClient)
	}
	window := r.now().UnixMilli() / r.period.Milliseconds()
	answer, err := call(ctx, r.kv, fmt.Sprintf("%stake/%s/%d", r.root, r.name, window), strconv.FormatInt(n, 10))
	if err == nil && answer != nil && string(answer.Value) == "refused" {
		return 0, false, nil
	}
	if err == nil {
		left, err = number(answer)
	}
	if err != nil {
		return 0, false, fmt.Errorf("recipes: taking from %s%s: %w", r.root, r.name, err)
	}
	return left, true, nil
}
