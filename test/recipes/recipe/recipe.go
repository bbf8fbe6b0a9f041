// Package recipe says what a counter, a queue, a barrier and an election are, apart
// from the service that they are built on. The three packages beside it build them:
// overetcd and overzookeeper in the traditional way, by reads, conditional writes,
// watches and retries at the client (Distler et al., Extensible Distributed
// Coordination, figures 5, 7, 9 and 11), byextension by one call each.
package recipe

import (
	"context"
	"sync/atomic"
)

// Counter is shared by all participants.
type Counter interface {
	// Increment adds one and returns the new value, which no other increment returns.
	Increment(ctx context.Context) (int64, error)
	Value(ctx context.Context) (int64, error)
}

// Queue hands each element to one participant.
type Queue interface {
	Add(ctx context.Context, element string) error
	// Remove takes the oldest element, and waits for one only by asking again.
	Remove(ctx context.Context) (string, error)
}

// Barrier opens when as many participants as its threshold have entered.
type Barrier interface {
	Enter(ctx context.Context) error
}

// Election has one leader at a time.
type Election interface {
	// Campaign returns when this participant leads.
	Campaign(ctx context.Context) error
	Resign(ctx context.Context) error
}

// Kit is one participant: a connection of its own, and the recipes over it.
type Kit interface {
	Counter() Counter
	Queue() Queue
	Barrier(id string, threshold int) Barrier
	// Election prepares the participant's session, so that Campaign doesn't pay for it.
	Election(ctx context.Context, id string) (Election, error)
	// Reset empties the state of a recipe (by its name) for the given number of
	// participants. It is the business of a participant that takes no part.
	Reset(ctx context.Context, name string, participants int) error
	Tally() *Tally
	Close() error
}

// Names of the recipes, in the order of the paper.
var Names = []string{"counter", "queue", "barrier", "election"}

// Tally counts what the recipes of a participant asked of the service.
type Tally struct {
	Calls   atomic.Int64 // requests that were answered
	Retries atomic.Int64 // attempts that were in vain, because another participant was faster
}

// Count is a Tally as it stood at a moment.
type Count struct{ Calls, Retries int64 }

// Now reads the tally.
func (t *Tally) Now() Count { return Count{t.Calls.Load(), t.Retries.Load()} }
