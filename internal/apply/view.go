package apply

import (
	"strconv"
	"strings"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// mayUse tells whether a client may call an extension: its owner may, and clients that
// have acknowledged it (§3.6).
func mayUse(keys extension.State, e *extension.Extension, client string) bool {
	return ownerOf(keys, e.OwnerKey()) == client || keys.Get(extension.AckKey(e.Name, client)).Exists()
}

// Anonymous is the id of clients that send none.
const Anonymous = "anonymous"

func ownerOf(keys extension.State, ownerKey []byte) string {
	if kv := keys.Get(ownerKey); kv.Exists() {
		return string(kv.Value())
	}
	return Anonymous
}

func standingOf(keys extension.State, stateKey []byte) extension.Standing {
	if kv := keys.Get(stateKey); kv.Exists() {
		return extension.ParseStanding(kv.Value())
	}
	return extension.Standing{}
}

// view is an execution's keys as its extensions see them.
type view struct{ x *execution }

func (v view) Get(key []byte) kvwire.KeyValue {
	_, s := v.x.store(key)
	return s.Get(key)
}

func (v view) Range(key, end []byte, limit int) []kvwire.KeyValue {
	return v.x.newest(key, end, limit)
}

func (v view) Count(key, end []byte) int {
	n, err := v.x.count(key, end, 0)
	v.x.inMemory(err)
	return n
}

func (v view) HasLease(_ []byte, id int64) bool { return id != v.x.ending && v.x.m.Leases.Has(id) }

func (v view) Permits(_, _ []byte, _ bool) bool { return true }

// proxy is the view of a handler, which runs as a user.
type proxy struct{ view }

func (p proxy) Permits(key, end []byte, write bool) bool {
	if write {
		return p.x.runAs.MayWrite(key, end) == nil
	}
	return p.x.runAs.MayRead(key, end) == nil
}

// HasLease shows a user its own leases: whether others allow more keys is known in all
// partitions together alone. A key may keep the lease that it has, as in a put that ignores it, also one that is ending:
// with that the key ends, too.
func (p proxy) HasLease(key []byte, id int64) bool {
	kept := p.x.m.Level() >= levelOfKeptLeases && p.Get(key).Lease() == id
	return kept || p.view.HasLease(key, id) && !p.x.foreign(id, p.x.runAs)
}

// registrar is the user as whom the event handler of an extension runs: the one who
// registered it, with the rights of now. One that was registered while permissions
// weren't enforced, or by a user who is gone, has none.
func (x *execution) registrar(name string) *auth.User {
	now := x.m.Auth()
	if !now.Enabled {
		return nil
	}
	id, user, _ := strings.Cut(string((view{x}).Get(extension.RegistrarKey(name)).Value()), " ")
	if u := now.User(user); u != nil && strconv.FormatUint(u.ID, 10) == id {
		return u
	}
	return new(auth.User)
}
