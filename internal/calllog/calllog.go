package calllog

import (
	"slices"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/internal/extension"
)

// Bounds are the limits of a log. Bytes are at least those of the memory that calls take.
type Bounds struct {
	Lines int // of each extension; a failure counts as a line
	Bytes int // of each extension
	Total int // bytes of all extensions
}

// Default has room for the longest log of one call (100 lines of 1,000 bytes) five times
// over, and for 32 extensions with full rings.
var Default = Bounds{Lines: 1000, Bytes: 512 << 10, Total: 16 << 20}

// MaxKey is how many bytes of a call's key are kept.
const MaxKey = 256

// Call is the record of one run of a handler. Immutable.
type Call struct {
	Time    time.Time
	Rev     int64
	Handler string // "read" …, or "created" …; "" of a failure that is no handler's
	Key     string // up to MaxKey bytes of the key that it was called for
	Lines   []string
	// Err is why the call failed, and its writes were dropped; nil if it didn't.
	Err error
	// Seen is what its extension sees (extension.Code). A ring has calls with one only: those with
	// another are dropped, whose readers may be others.
	Seen []extension.Pattern
	// Apart says that the key is not among these: a transaction is told by the first that it names.
	Apart bool
	// Undone says that this is no run: those before it of the same revision have no effect,
	// because of Err.
	Undone bool
}

// Memory beside the texts: a record with its error, a line's header (twice, since the
// capacity of a slice is up to twice its length), and a ring with its place in the map.
// Texts take up to an eighth more than their length, and short ones 16 bytes.
const (
	recordBytes = 240
	lineBytes   = 32 + 16
	ringBytes   = 400
)

func (c *Call) size() int {
	texts := len(c.Key)
	if c.Err != nil {
		texts += len(c.Err.Error())
	}
	for _, l := range c.Lines {
		texts += len(l)
	}
	return recordBytes + len(c.Lines)*lineBytes + texts + texts/8
}

func (c *Call) lines() int {
	n := len(c.Lines)
	if c.Err != nil {
		n++
	}
	return n
}

// record is a call in its ring, and in the list of all.
type record struct {
	Call
	seq          uint64 // in its ring, from 1
	bytes        int
	ring         *ring
	prev, next   *record // in its ring
	older, newer *record // of all
}

// ring is the latest calls of one extension.
type ring struct {
	name        string
	seen        []extension.Pattern // of the calls
	first, last *record
	seq         uint64 // of the last call that was added
	lines       int
	bytes       int
	readers     int
	gone        bool          // the extension was removed
	changed     chan struct{} // closed at the next change; nil: no reader waits
}

// Log is the calls of all extensions.
type Log struct {
	bounds Bounds

	mu             sync.Mutex
	rings          map[string]*ring
	oldest, newest *record
	bytes          int
}

// New returns an empty log.
func New(b Bounds) *Log { return &Log{bounds: b, rings: map[string]*ring{}} }

// Add records a call. The lines must not be written to any more.
func (l *Log) Add(name string, c Call) {
	r := &record{Call: c, bytes: c.size()}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.ring(name)
	other := !slices.Equal(r.Seen, g.seen)
	if other {
		g.seen = r.Seen
	}
	g.seq++
	r.seq, r.ring, r.Seen = g.seq, g, g.seen
	g.append(r)
	l.append(r)
	for g.first != r && (other || g.lines > l.bounds.Lines || g.bytes > l.bounds.Bytes) {
		l.drop(g.first)
	}
	for l.oldest != r && l.bytes > l.bounds.Total {
		l.drop(l.oldest)
	}
	g.wake()
}

// Forget drops the calls of an extension that is removed, and ends its readers.
func (l *Log) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.rings[name]; g != nil {
		l.forget(g)
	}
}

// Retain forgets all extensions but those that are registered.
func (l *Log) Retain(registered func(name string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, g := range l.rings {
		if !registered(name) {
			l.forget(g)
		}
	}
}

func (l *Log) forget(g *ring) {
	l.remove(g)
	for g.first != nil {
		l.drop(g.first)
	}
	g.gone = true
	g.wake()
}

// ring finds or begins that of an extension.
func (l *Log) ring(name string) *ring {
	g := l.rings[name]
	if g == nil {
		g = &ring{name: name}
		l.rings[name] = g
		l.bytes += ringBytes
	}
	return g
}

// drop removes the first call of a ring. A reader may keep it for longer, which must not
// keep others.
func (l *Log) drop(r *record) {
	g := r.ring
	if g.first = r.next; g.first == nil {
		g.last = nil
	} else {
		g.first.prev = nil
	}
	g.lines -= r.lines()
	g.bytes -= r.bytes
	l.bytes -= r.bytes
	if r.older != nil {
		r.older.newer = r.newer
	} else {
		l.oldest = r.newer
	}
	if r.newer != nil {
		r.newer.older = r.older
	} else {
		l.newest = r.older
	}
	r.next, r.older, r.newer = nil, nil, nil
	l.tidy(g)
}

// tidy removes a ring that holds nothing.
func (l *Log) tidy(g *ring) {
	if g.first == nil && g.readers == 0 && l.rings[g.name] == g {
		l.remove(g)
	}
}

func (l *Log) remove(g *ring) {
	delete(l.rings, g.name)
	l.bytes -= ringBytes
}

func (g *ring) append(r *record) {
	if r.prev = g.last; r.prev != nil {
		r.prev.next = r
	} else {
		g.first = r
	}
	g.last = r
	g.lines += r.lines()
	g.bytes += r.bytes
}

func (l *Log) append(r *record) {
	if r.older = l.newest; r.older != nil {
		r.older.newer = r
	} else {
		l.oldest = r
	}
	l.newest = r
	l.bytes += r.bytes
}

func (g *ring) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
