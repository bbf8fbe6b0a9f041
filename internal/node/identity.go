package node

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/token"
	"github.com/stoa-kv/stoa/internal/watch"
)

// Credentials are how a client proves who it is: by a token, or else by the certificate with
// which it has connected.
type Credentials struct {
	Token      string
	CommonName string // of the certificate; "" without one
}

// identity is the user of a request.
type identity struct {
	user  uint64    // its credential; 0: none
	until time.Time // when its token expires; zero: it doesn't by itself
}

// identify finds the user of a request. While permissions aren't enforced as far as this
// server knows there is none, and no proof is looked at. What the user may do isn't decided
// here, but where the request takes effect.
func (n *Node) identify(ctx context.Context) (identity, error) {
	c, err := n.informed(ctx)
	if err != nil || !c.machine.Auth().Enabled {
		return identity{}, err
	}
	proof := n.cfg.Credentials(ctx)
	switch {
	case proof.Token == "" && proof.CommonName == "":
		if ctx.Value(serverKey{}) != nil {
			return identity{user: auth.Own}, nil
		}
		return identity{}, nil
	case proof.Token == "":
		return n.named(ctx, token.Claims{User: proof.CommonName, Revision: c.machine.Auth().Revision})
	case n.cfg.Tokens.JWT != nil:
		claims, err := n.cfg.Tokens.JWT.Verify(proof.Token, time.Now())
		if err != nil {
			return identity{}, fault.InvalidAuthToken
		}
		return n.named(ctx, claims)
	}
	return n.holder(ctx, proof.Token)
}

// informed is present for a request of which it is asked who makes it: one waits, no longer than any request may take, until this server has the users and roles
// that it had before a snapshot took it back. Else it would take a user for none, and serve whoever comes as if permissions weren't enforced.
func (n *Node) informed(ctx context.Context) (*core, error) {
	c, err := n.present(ctx)
	if err != nil || c.informed() {
		return c, err
	}
	ctx, cancel := n.limited(ctx)
	defer cancel()
	for err == nil && !c.informed() {
		if err = n.pause(ctx, shortly); err == nil {
			c, err = n.present(ctx)
		}
	}
	return c, err
}

// named is the user whom a client has proved to be at a revision. A server that hasn't
// applied that revision, or that user, looks again once it has caught up.
func (n *Node) named(ctx context.Context, claims token.Claims) (identity, error) {
	c, err := n.present(ctx)
	if err != nil {
		return identity{}, err
	}
	now := c.machine.Auth()
	if u := now.User(claims.User); u == nil || claims.Revision > now.Revision {
		if c, err = n.strict(ctx, placement.Of(0)); err != nil {
			return identity{}, err
		}
		now = c.machine.Auth()
	}
	u := now.User(claims.User)
	switch {
	case !now.Enabled:
		return identity{}, nil
	case u == nil:
		return identity{}, fault.PermissionDenied
	case claims.Revision < u.Credential || claims.Revision < now.Since:
		return identity{}, fault.AuthOldRevision
	}
	return identity{u.Credential, claims.Expires}, nil
}

// holder is the user to whom a simple token was assigned.
func (n *Node) holder(ctx context.Context, text string) (identity, error) {
	if n.cfg.Tokens.Simple == nil {
		return identity{}, fault.InvalidAuthToken
	}
	credential, ok := n.cfg.Tokens.Simple.Find(text, n.clock())
	if !ok {
		if err := n.assigned(ctx, text); err != nil {
			return identity{}, err
		}
		credential, ok = n.cfg.Tokens.Simple.Find(text, n.clock())
	}
	if !ok || n.core.Load().machine.Auth().ByCredential(credential) == nil {
		return identity{}, fault.InvalidAuthToken
	}
	return identity{user: credential}, nil
}

// assigned returns once this server has applied the entry by which a simple token was assigned, according to its text, if there
// is such an entry: a cluster that was restored gets the tokens of the one before, whose log was longer.
func (n *Node) assigned(ctx context.Context, text string) error {
	index, ok := token.Index(text)
	if !ok {
		return fault.InvalidAuthToken
	}
	c, err := n.present(ctx)
	if err != nil {
		return err
	}
	if _, applied := c.replica.Progress(0); applied < index {
		_, err = n.strict(ctx, placement.Of(0))
	}
	return err
}

// serverKey marks the context of a server's own requests, which no client's has.
type serverKey struct{}

// own is the user of a server's own commands. Without users they have none: a cluster of an
// earlier version knows of no users of commands.
func own(c *core) uint64 {
	if c.machine.Auth().Enabled {
		return auth.Own
	}
	return 0
}

func asServer(ctx context.Context) context.Context { return context.WithValue(ctx, serverKey{}, true) }

// unknown reports whether a request without a user was refused because permissions have
// come to be enforced, and this server didn't know yet when it looked for the user. The
// request had no effect.
func (n *Node) unknown(ctx context.Context, who *identity, err error) bool {
	if who.user != 0 || !errors.Is(err, fault.UserEmpty) {
		return false
	}
	if !n.AuthEnabled() { // as yet: another server has refused it
		if _, err := n.strict(ctx, placement.Of(0)); err != nil {
			return false
		}
	}
	again, err := n.identify(ctx)
	if err != nil || again.user == 0 {
		return false
	}
	*who = again
	return true
}

// as carries out a request as its user, and again if it has to have one and was taken for a request without (unknown).
func as[R any](ctx context.Context, n *Node, who *identity, do func(identity) (R, error)) (R, error) {
	r, err := do(*who)
	if err != nil && n.unknown(ctx, who, err) {
		return do(*who)
	}
	return r, err
}

// client returns the ID by which extensions know the client of a request, and the lease
// that it names.
func (n *Node) client(ctx context.Context, c *core, user uint64) (id string, lease int64, err error) {
	id, lease = n.cfg.Caller(ctx)
	now := c.machine.Auth()
	if !now.Enabled {
		return id, lease, nil
	}
	u, err := now.Authorize(user)
	if err == nil {
		id, err = u.Client(id)
	}
	return id, lease, err
}

// asking is client for a request that concerns extensions. If the client may not make the
// request at all, a foreign ID is no reason to refuse it: there is none where there is no
// extension, and the client would learn of it.
func (n *Node) asking(ctx context.Context, c *core, req proto.Message, user uint64) (id string, lease int64, err error) {
	id, lease, err = n.client(ctx, c, user)
	if errors.Is(err, fault.ForeignClient) {
		if u, unknown := c.machine.Auth().Authorize(user); unknown == nil && u.May(req) != nil {
			err = fault.PermissionDenied
		}
	}
	return id, lease, err
}

// User is the name of the user whom a client has proved to be, as far as this server knows
// without asking others; "" for none. It is for the audit log, not for decisions.
func (n *Node) User(ctx context.Context) string {
	state := n.core.Load().machine.Auth()
	proof := n.cfg.Credentials(ctx)
	switch {
	case !state.Enabled:
		return ""
	case proof.Token == "":
		return proof.CommonName
	case n.cfg.Tokens.JWT != nil:
		claims, err := n.cfg.Tokens.JWT.Verify(proof.Token, time.Now())
		if err != nil {
			return ""
		}
		return claims.User
	case n.cfg.Tokens.Simple == nil:
		return ""
	}
	credential, _ := n.cfg.Tokens.Simple.Find(proof.Token, n.clock())
	if u := state.ByCredential(credential); u != nil {
		return u.Name
	}
	return ""
}

// Permit refuses a request of a client who is no user, while permissions are enforced, or,
// if root is asked for, one without that role.
func (n *Node) Permit(ctx context.Context, root bool) error {
	c, err := n.informed(ctx)
	if err != nil || !c.machine.Auth().Enabled {
		return err
	}
	who, err := n.identify(ctx)
	if err != nil {
		return err
	}
	if err = n.permits(who, root); err == nil {
		return nil
	}
	// This server may not have applied the right yet.
	if _, late := n.strict(ctx, placement.Of(0)); late != nil {
		return err
	}
	return n.permits(who, root)
}

func (n *Node) permits(who identity, root bool) error {
	u, err := n.core.Load().machine.Auth().Authorize(who.user)
	if err == nil && root {
		err = u.MustBeRoot()
	}
	return err
}

// permitted are the watches that are allowed in a state of users and roles.
func permitted(now *auth.State) watch.Permit {
	if !now.Enabled {
		return nil
	}
	return func(user uint64, key, end []byte) error {
		u, err := now.Authorize(user)
		if err != nil {
			return err
		}
		return u.MayRead(key, end)
	}
}
