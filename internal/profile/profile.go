// Package profile runs the profiles of extensions on one server: the steps of an extension's
// calls by source line, for `stoactl extension profile`.
//
// Invariants:
//
//  1. While nothing is profiled, a call pays for one atomic load ([Set.Of]).
//  2. There is one profile at a time of an extension, and maxRunning in all.
//  3. The calls of a profile are those of one source: [Set.End] must be called, under the
//     locks of the partitions, when an extension is removed or replaced.
//
// All methods may be called by any number of goroutines at once. A profile has no effect on
// the results or the usage of calls ([script.Module.Profiled]), and is no state.
package profile

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/script"
)

// maxRunning is how many extensions can be profiled at once.
const maxRunning = 16

// Profile counts the steps of an extension's calls by line. It must be stopped.
type Profile struct {
	// Revision is that of the registration of the source. The caller of Begin sets it.
	Revision int64

	name  string
	steps script.Profile
	ended chan struct{}
	set   *Set
}

// Ended is closed when the extension has been removed, or replaced by another source.
func (p *Profile) Ended() <-chan struct{} { return p.ended }

// Usage returns the number of calls so far, and the usage of each line that they reached.
func (p *Profile) Usage() (calls int64, lines []script.LineUsage) { return p.steps.Usage() }

// Stop ends the profile, which can still be read.
func (p *Profile) Stop() { p.set.remove(p) }

// Set is the profiles that run. The zero Set has none.
type Set struct {
	mu sync.Mutex // of changes
	// running is replaced as a whole; nil if it is empty.
	running atomic.Pointer[map[string]*Profile]
}

// Of is where the steps of an extension's next call are counted, nil for nowhere.
func (s *Set) Of(name string) *script.Profile {
	if m := s.running.Load(); m != nil {
		if p := (*m)[name]; p != nil {
			return &p.steps
		}
	}
	return nil
}

// Begin begins the profile of an extension. The error is a [fault.TooManyProfiles].
func (s *Set) Begin(name string) (*Profile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.clone()
	switch {
	case next[name] != nil:
		return nil, fault.TooManyProfiles.With(fmt.Sprintf("stoa: extension %q is being profiled on this server: there is one profile at a time of an extension", name))
	case len(next) >= maxRunning:
		return nil, fault.TooManyProfiles.With(fmt.Sprintf("stoa: %d extensions are being profiled on this server, the most that there may be", maxRunning))
	}
	p := &Profile{name: name, ended: make(chan struct{}), set: s}
	next[name] = p
	s.running.Store(&next)
	return p, nil
}

// End ends the profile of an extension whose source has changed.
func (s *Set) End(name string) {
	m := s.running.Load()
	if m == nil {
		return
	}
	if p := (*m)[name]; p != nil && s.remove(p) {
		close(p.ended)
	}
}

// EndAll ends all profiles.
func (s *Set) EndAll() {
	if m := s.running.Load(); m != nil {
		for name := range *m {
			s.End(name)
		}
	}
}

// remove takes a profile out, and tells whether it was still there.
func (s *Set) remove(p *Profile) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.clone()
	if next[p.name] != p {
		return false
	}
	if delete(next, p.name); len(next) == 0 {
		s.running.Store(nil)
	} else {
		s.running.Store(&next)
	}
	return true
}

func (s *Set) clone() map[string]*Profile {
	if m := s.running.Load(); m != nil {
		return maps.Clone(*m)
	}
	return map[string]*Profile{}
}
