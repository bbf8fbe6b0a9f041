package apply

import (
	"sync"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// audience is the clients that use an extension. Immutable.
type audience struct {
	owner string
	acked map[string]struct{}
}

func (a *audience) has(client string) bool {
	_, ok := a.acked[client]
	return ok || client == a.owner
}

// audiences caches the audiences computed so far, until an acknowledgement changes.
type audiences struct {
	mu     sync.Mutex
	byName map[string]*audience
}

func (a *audiences) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byName, name)
}

// forgetAll clears the cache, for a command that was rolled back.
func (a *audiences) forgetAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byName = nil
}

// of finds the users of an extension. The caller holds the lock of its home.
func (a *audiences) of(keys extension.State, name string) *audience {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found := a.byName[name]; found != nil {
		return found
	}
	found := &audience{owner: ownerOf(keys, extension.OwnerKey(name)), acked: map[string]struct{}{}}
	from, to := extension.Pattern(extension.AckKey(name, "")).Bounds()
	for _, kv := range keys.Range(from, to, 0) {
		_, _, client := extension.Parse(kv.Key())
		found.acked[client] = struct{}{}
	}
	if a.byName == nil {
		a.byName = map[string]*audience{}
	}
	a.byName[name] = found
	return found
}

// hide keeps a change of this command from the watches of the clients that use e. It is
// no part of the history: a watch that reads the change from there delivers it.
func (x *execution) hide(e *extension.Extension, sub int64) {
	hides := x.m.audiences.of(view{x}, e.Name).has
	c := x.changed(sub)
	if old := c.Hides; old != nil {
		c.Hides = func(client string) bool { return old(client) || hides(client) }
	} else {
		c.Hides = hides
	}
}

// notice sends watchers of a key an event without writing the key: a put of version
// 0, which is no part of the history either. It takes a sub-revision of the command's
// revision, as a write does.
func (x *execution) notice(n extension.Notice) {
	p, s := x.store(n.Key)
	s.SetRev(x.rev)
	x.record(p, store.Change{
		Revision: store.Revision{Main: x.rev, Sub: x.sub},
		Kv:       kvwire.Make(n.Key, n.Value, kvwire.Fields{ModRevision: x.rev}),
	})
}

func isNotice(c *store.Change) bool { return !c.Delete && c.Kv.Version() == 0 }
