package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/calllog"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/profile"
	"github.com/stoa-kv/stoa/internal/script"
)

// observable is a registered extension whose calls a client asks to see.
func (n *Node) observable(ctx context.Context, name string) (*extension.Extension, error) {
	who, err := n.identify(ctx)
	if err != nil {
		return nil, err
	}
	_, e, err := n.observableBy(who.user, name)
	return e, err
}

// observableBy is the user with a credential, and an extension whose calls it may see. All that
// shows calls comes through here.
//
// The lines and the failures of calls may hold what the handlers have read, and the requests, so the client
// must have the permission to read all that the extension sees.
func (n *Node) observableBy(user uint64, name string) (*auth.User, *extension.Extension, error) {
	c := n.core.Load()
	u, err := c.machine.Auth().Authorize(user)
	if err == nil {
		err = u.MayRead(extension.SourceKey(name), nil)
	}
	if err != nil {
		return nil, nil, err
	}
	// Under this lock, the registry is what the sink has been told.
	c.stores[0].RLock()
	defer c.stores[0].RUnlock()
	e := c.machine.Extensions().Get(name)
	if e == nil {
		return nil, nil, fault.NoExtension.With(fmt.Sprintf("stoa: there is no extension %q", name))
	}
	return u, e, mayReadAllOf(u, e.Sees())
}

func mayReadAllOf(u *auth.User, patterns []extension.Pattern) error {
	for _, p := range patterns {
		if err := u.MayRead(p.Bounds()); err != nil {
			return err
		}
	}
	return nil
}

// ExtensionLog opens the log of an extension's calls on this server: of those that wrote
// lines, and of those that failed. The reader must be closed. The error is a
// [fault.NoExtension].
func (n *Node) ExtensionLog(ctx context.Context, name string) (*calllog.Reader, error) {
	who, err := n.identify(ctx)
	if err != nil {
		return nil, err
	}
	// Opened before the registry is asked: a removal from then on ends it.
	c := n.callLog.Open(name)
	if _, _, err := n.observableBy(who.user, name); err != nil {
		c.Close()
		return nil, err
	}
	return &calllog.Reader{Cursor: c, Show: func(b *calllog.Batch) error { return n.showCalls(who.user, name, b) }}, nil
}

// showCalls leaves in a batch what the user may still see. The source of the extension, and what it sees, may be others
// than when it was called.
func (n *Node) showCalls(user uint64, name string, b *calllog.Batch) error {
	u, _, err := n.observableBy(user, name)
	if err == nil {
		b.Calls = slices.DeleteFunc(b.Calls, func(c *calllog.Call) bool {
			return mayReadAllOf(u, c.Seen) != nil || c.Apart && u.MayRead([]byte(c.Key), nil) != nil
		})
	}
	return err
}

// ProfileExtension begins to count the steps of an extension's calls on this server, by
// line. The profile must be stopped. The error is a [fault.NoExtension] or a
// [fault.TooManyProfiles].
func (n *Node) ProfileExtension(ctx context.Context, name string) (*profile.Profile, error) {
	if _, err := n.observable(ctx, name); err != nil {
		return nil, err
	}
	p, err := n.profiles.Begin(name)
	if err != nil {
		return nil, err
	}
	// The revision is read afterwards: a change of the source from then on ends the profile.
	e, err := n.observable(ctx, name)
	if err != nil {
		p.Stop()
		return nil, err
	}
	p.Revision = e.Order
	return p, nil
}

// logCall keeps the log lines and the failure of a call. Calls with neither, nearly all,
// cost nothing. It is called while stores are locked.
func (m *meter) logCall(name string, out *extension.Outcome, err error) {
	if len(out.Log) == 0 && err == nil {
		return
	}
	m.keep(name, out.Key, calllog.Call{Time: time.Now(), Rev: out.Rev, Handler: out.Handler, Lines: out.Log, Err: err})
}

// Undone implements apply.Meter.
func (m *meter) Undone(name string, rev int64, err error) {
	m.keep(name, nil, calllog.Call{Time: time.Now(), Rev: rev, Err: err, Undone: true})
}

// keep finds in the registry what was called: it doesn't change before a request has made all its calls.
func (m *meter) keep(name string, key []byte, c calllog.Call) {
	if e := m.c.machine.Extensions().Get(name); e != nil {
		c.Key, c.Seen = string(key[:min(len(key), calllog.MaxKey)]), e.Sees()
		c.Apart = len(key) > 0 && !slices.ContainsFunc(c.Seen, func(p extension.Pattern) bool { return p.Covers(string(key)) })
		m.n.callLog.Add(name, c)
	}
}

// Profile implements apply.Meter.
func (m *meter) Profile(name string) *script.Profile { return m.n.profiles.Of(name) }
