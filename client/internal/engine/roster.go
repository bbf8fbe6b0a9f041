package engine

import (
	"context"
	"sync"
	"time"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// roster tracks the endpoint of the leader, for all sessions of a client.
type roster struct {
	endpoints func() []string
	ask       func(ctx context.Context, endpoint string) (*stoapb.ListPartitionsResponse, error)

	mu      sync.Mutex // held while the members are asked: one asks for all
	asked   time.Time
	best    []string // endpoints, the leader's first, those that don't answer last
	leader  uint64   // 0 if none is known whose endpoint is
	turn    int
	missed  chan struct{} // a search for the leader found none
	stopped chan struct{}
	once    sync.Once // follow
	end     sync.Once // stop
}

const (
	askWithin = time.Second
	// askAgain bounds how often sessions that look for a member have all members
	// asked.
	askAgain = 200 * time.Millisecond
	// How often the leader is looked for while there is one, and while there is
	// none.
	lookSeldom = 5 * time.Second
	lookOften  = time.Second
)

func newRoster(endpoints func() []string, ask func(context.Context, string) (*stoapb.ListPartitionsResponse, error)) *roster {
	return &roster{endpoints: endpoints, ask: ask, missed: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// order is the order in which to try the endpoints, by what is known since some
// time.
func (r *roster) order(ctx context.Context, since time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.endpoints()
	if len(all) < 2 {
		return all
	}
	if r.asked.Before(since) || time.Since(r.asked) > askAgain {
		r.survey(ctx, all)
	}
	if r.leader == 0 {
		select {
		case r.missed <- struct{}{}:
		default:
		}
	}
	return append([]string(nil), r.best...)
}

// member is the answer of an endpoint.
type member struct {
	endpoint string
	id       uint64
	leader   uint64
	term     uint64
	err      error
}

// survey asks all endpoints at once, until the leader is found. It needs the lock.
func (r *roster) survey(ctx context.Context, all []string) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	said := make(chan member, len(all))
	for _, e := range all {
		go func() { said <- r.interview(ctx, e) }()
	}
	var there []member
	leader, term := uint64(0), uint64(0)
	for range all {
		m := <-said
		if m.err != nil {
			continue
		}
		there = append(there, m)
		if m.leader != 0 && m.term >= term {
			leader, term = m.leader, m.term
		}
		if m.leader == m.id && m.id != 0 && 2*len(there) > len(all) {
			break // a majority agrees on the leader
		}
	}
	r.arrange(all, there, leader)
	r.asked = time.Now()
}

func (r *roster) interview(ctx context.Context, endpoint string) member {
	m := member{endpoint: endpoint}
	answer, err := r.ask(ctx, endpoint)
	if err != nil {
		m.err = err
		return m
	}
	m.id = answer.MemberId
	if len(answer.Partitions) > 0 { // one member leads all
		m.leader, m.term = answer.Partitions[0].Leader, answer.Partitions[0].Term
	}
	return m
}

// arrange sorts the endpoints: the leader, those that answer in turns, the rest.
func (r *roster) arrange(all []string, there []member, leader uint64) {
	r.leader, r.turn = 0, r.turn+1
	var first, answering, silent []string
	for i := range all {
		e := all[(i+r.turn)%len(all)]
		place := &silent
		for _, m := range there {
			if m.endpoint == e {
				place = &answering
				if m.id == leader && leader != 0 {
					place, r.leader = &first, leader
				}
			}
		}
		*place = append(*place, e)
	}
	r.best = append(append(first, answering...), silent...)
}

// follow calls moved with the leader, again and again, as long as the client
// lives: a leader may change without any stream's breaking.
func (r *roster) follow(moved func(leader uint64)) {
	r.once.Do(func() { go r.watch(moved) })
}

func (r *roster) watch(moved func(leader uint64)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	often := false
	timer := time.NewTimer(lookSeldom)
	for {
		select {
		case <-r.stopped:
			return
		case <-r.missed:
			if !often {
				often = true
				timer.Reset(lookOften)
			}
			continue
		case <-timer.C:
		}
		often = false
		timer.Reset(lookSeldom)
		r.order(ctx, time.Now())
		r.mu.Lock()
		leader := r.leader
		r.mu.Unlock()
		if leader != 0 {
			moved(leader)
		}
	}
}

func (r *roster) stop() { r.end.Do(func() { close(r.stopped) }) }
