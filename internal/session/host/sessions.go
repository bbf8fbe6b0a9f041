package host

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// Sessions are those whose streams end at one server.
type Sessions struct {
	server Server
	cfg    Config
	lags   lags
	hints  hints

	mu   sync.Mutex
	byID map[int64]*Session
}

// New returns the sessions of a server; there are none yet.
func New(server Server, cfg Config) *Sessions {
	cfg.setDefaults()
	return &Sessions{server: server, cfg: cfg, byID: map[int64]*Session{}}
}

// Lease is what a session is tied to.
type Lease struct {
	ID, TTL int64     // in seconds; see [LeaseTTL]
	Renewed time.Time // when it was asked to be granted or renewed: when the stream asked for the session
}

// User is on whose behalf a session's requests are carried out. The zero value is that of a
// cluster without authentication.
type User struct {
	Credential uint64    // see package auth
	Until      time.Time // the session ends with the first request after it; zero: it doesn't
}

// Open opens a session, or takes one up again. Of two of the same id, the one that was begun first ends: a stream that
// its client has given up can come behind the next one, or get its lease renewed behind it. Nothing is said to the sink before
// Start, and what the host doesn't know is missing from the answer.
func (ss *Sessions) Open(l Lease, u User, o *stoapb.OpenSession, watches []session.Item, sink session.Sink) (*Session, *stoapb.Opened) {
	ttl := sessionTTL(l.TTL)
	s := &Session{
		of: ss, id: l.ID, client: o.GetClient(), user: u.Credential, until: u.Until, stream: o.GetStream(), asked: l.Renewed, sink: sink,
		done: make(chan struct{}), room: make(chan struct{}, 1),
		life: life{slack: time.Duration(l.TTL-ttl) * time.Second, asked: l.Renewed},
	}
	s.driver.renewed = l.Renewed
	s.driver.init(s, o, watches)
	if ends := ss.add(s); ends != nil {
		ends.end(fault.SessionTaken)
	}
	return s, &stoapb.Opened{
		Session: l.ID, Ttl: ttl, WindowRequests: windowRequests, WindowBytes: windowBytes,
		PartitionMap: s.driver.tellMap(),
	}
}

// add makes a session the one of its id, unless there is one that was begun later. It returns the one of the two that
// has to end.
func (ss *Sessions) add(s *Session) (ends *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	before := ss.byID[s.id]
	if before != nil && before.follows(s) {
		return s
	}
	ss.byID[s.id] = s
	return before
}

func (ss *Sessions) remove(s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.id] == s {
		delete(ss.byID, s.id)
	}
}

// Revoked must be called when a lease has ended; it may be under the stores' locks.
func (ss *Sessions) Revoked(id int64) {
	ss.mu.Lock()
	s := ss.byID[id]
	ss.mu.Unlock()
	if s != nil {
		ss.server.Go(s.revoked)
	}
}

// End ends all sessions on this server; their clients go on elsewhere.
func (ss *Sessions) End(why error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(ss.byID)) { // in order: a simulation must repeat itself
		s := ss.byID[id]
		ss.server.Go(func() { s.end(why) })
	}
}

// Advanced must be called after a partition's closed revision has risen. It takes no
// store's lock, so the replica's clock and links may call it during an apply.
func (ss *Sessions) Advanced() { ss.lags.check() }

// Replaced must be called when another state has taken the place of the one before.
func (ss *Sessions) Replaced() { ss.lags.replaced(ss.server.State()) }

// everything is a revision that holds nothing up.
const everything = math.MaxInt64
