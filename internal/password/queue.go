package password

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrFull says that too many wait for their turn.
var ErrFull = errors.New("too many passwords wait to be hashed")

// Config is what a [Queue] goes by.
type Config struct {
	// Parallel is how many passwords are hashed at a time.
	Parallel int
	// Waiting is how many wait for their turn at most.
	Waiting int
	// Used is the CPU time that the process has used.
	Used func() time.Duration
	// Secret is the key under which passwords that were right are remembered: random, and
	// known to this process alone.
	Secret []byte
}

// Queue hashes passwords a few at a time, beside whatever else the process does, which goes first.
// Its methods may be called from any goroutine.
type Queue struct {
	cfg     Config
	turns   chan struct{}
	waiting atomic.Int64
	meter   meter
	known   known
}

// NewQueue returns an empty queue.
func NewQueue(cfg Config) *Queue {
	return &Queue{
		cfg: cfg, turns: make(chan struct{}, cfg.Parallel), meter: meter{used: cfg.Used, began: time.Now(), before: cfg.Used(), busy: true},
		known: known{secret: cfg.Secret},
	}
}

// Matches tells whether it is the hash of the password: at once if it has said so before, and
// otherwise in its turn. Its errors are ErrFull and the context's cause.
func (q *Queue) Matches(ctx context.Context, hash, password []byte) (ok bool, err error) {
	if q.known.has(hash, password) {
		return true, nil
	}
	err = q.turn(ctx, func(step func() error) (err error) {
		// Another one that waited with the same password may have been first.
		if ok = q.known.has(hash, password); ok {
			return nil
		}
		if ok, err = matches(hash, password, step); ok {
			q.known.add(hash, password)
		}
		return err
	})
	return ok, err
}

// Generate makes a hash of a password, in its turn, with a salt of SaltBytes random bytes. Its errors
// are those of Matches, and bcrypt.ErrPasswordTooLong.
func (q *Queue) Generate(ctx context.Context, password, salt []byte, cost int) (hash []byte, err error) {
	err = q.turn(ctx, func(step func() error) (err error) {
		hash, err = generate(password, salt, cost, step)
		return err
	})
	return hash, err
}

// turn calls run in its turn; run is to call step often, and to end with its error.
func (q *Queue) turn(ctx context.Context, run func(step func() error) error) error {
	if q.waiting.Add(1) > int64(q.cfg.Parallel+q.cfg.Waiting) {
		q.waiting.Add(-1)
		return ErrFull
	}
	defer q.waiting.Add(-1)
	select {
	case q.turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-q.turns }()
	p := pacer{meter: &q.meter, began: time.Now(), now: &shared}
	return run(func() error {
		p.step()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	})
}
