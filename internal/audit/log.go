package audit

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// MaxPending is how many bytes of lines wait for the file at most.
const MaxPending = 8 << 20

// maxPiece is how many bytes are written at once, but for a longer line.
const maxPiece = 64 << 10

// warnEvery is the least time between two calls of Options.Failed.
const warnEvery = 10 * time.Second

// Options are what surrounds a log.
type Options struct {
	// Now is the time of a line about lines that are missing; nil: time.Now.
	Now func() time.Time
	// Failed is told, at most every ten seconds, that lines are being dropped: err is the
	// file's, nil if it is only too slow. It is called on the log's own goroutine.
	Failed func(dropped uint64, err error)
	// Torn: the file ends within a line, that of a server that ended while it wrote.
	Torn bool
	// MaxPending replaces the constant, for tests.
	MaxPending int
}

// Log writes records to a file on a goroutine of its own. Its methods may be called by any
// number of goroutines.
type Log struct {
	file io.WriteCloser
	o    Options

	mu      sync.Mutex
	pending []byte
	missing uint64 // dropped, and not yet noted in the file
	closed  bool

	wake, stop, ended chan struct{}

	written, dropped atomic.Uint64

	torn   bool // the file may end within a line
	warned time.Time
	spare  []byte
}

// Open returns a log that writes to a file until it is closed.
func Open(file io.WriteCloser, o Options) *Log {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxPending == 0 {
		o.MaxPending = MaxPending
	}
	l := &Log{file: file, o: o, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}), torn: o.Torn}
	go l.run()
	return l
}

// Add takes a record. It doesn't wait for the file.
func (l *Log) Add(r *Record) {
	line := r.line()
	l.mu.Lock()
	if l.closed || len(l.pending)+len(line) > l.o.MaxPending {
		l.missing++
		l.dropped.Add(1)
	} else {
		l.pending = append(l.pending, line...)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Written and Dropped are how many lines the file has taken, and how many are missing in it.
func (l *Log) Written() uint64 { return l.written.Load() }
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Close writes the lines that wait, as far as the file takes them, and closes the file. Lines
// that are added later are dropped. It returns false if that took longer than it may; then the
// file is closed once it has taken what it was given.
func (l *Log) Close(within time.Duration) bool {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
	}
	l.mu.Unlock()
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-l.ended:
		return true
	case <-t.C:
		return false
	}
}

func (l *Log) run() {
	defer close(l.ended)
	defer l.file.Close()
	for {
		select {
		case <-l.wake:
			l.flush()
		case <-l.stop:
			l.flush()
			return
		}
	}
}

// flush writes what waits.
func (l *Log) flush() {
	l.mu.Lock()
	batch, missing := l.pending, l.missing
	l.pending, l.missing = l.spare[:0], 0
	l.mu.Unlock()
	if missing > 0 {
		note := &Record{Time: l.o.Now(), Method: "audit", Code: "OK", Dropped: missing}
		batch = append(batch, note.line()...) // they came behind the lines that were kept
	}
	rest, err := l.write(batch)
	if err != nil {
		// The note is among the lines that are left.
		lost := uint64(bytes.Count(rest, []byte{'\n'}))
		if missing > 0 {
			lost--
		}
		l.dropped.Add(lost)
		missing += lost
		l.mu.Lock()
		l.missing += missing
		l.mu.Unlock()
	}
	if l.spare = batch[:0]; cap(batch) > 1<<20 {
		l.spare = nil
	}
	if missing > 0 && l.o.Failed != nil && l.o.Now().Sub(l.warned) >= warnEvery {
		l.warned = l.o.Now()
		l.o.Failed(missing, err)
	}
}

// write writes lines in pieces that a file which is rotated by its size takes, and returns
// the lines from the first on that it doesn't take whole.
func (l *Log) write(lines []byte) (rest []byte, err error) {
	for len(lines) > 0 {
		n := len(lines)
		if n > maxPiece {
			n = bytes.LastIndexByte(lines[:maxPiece], '\n') + 1
			if n == 0 {
				n = bytes.IndexByte(lines, '\n') + 1
			}
		}
		if l.torn {
			if _, err := l.file.Write([]byte{'\n'}); err != nil {
				return lines, err
			}
			l.torn = false
		}
		took, err := l.file.Write(lines[:n])
		whole := bytes.LastIndexByte(lines[:took], '\n') + 1
		l.torn = whole < took
		l.written.Add(uint64(bytes.Count(lines[:whole], []byte{'\n'})))
		lines = lines[whole:]
		if err != nil {
			return lines, err
		}
	}
	return nil, nil
}
