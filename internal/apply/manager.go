package apply

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The extension manager: the keys under /em/ are ordinary keys, but putting and
// deleting them has consequences (EZK §3.6).

// Extensions returns the current registry. It is immutable; the registry is
// replaced as a whole, at a rendezvous of all partitions.
func (m *Machine) Extensions() *extension.Registry { return m.extensions.Load() }

// LoadExtensions builds the registry from the keys, after a start. The caller must have
// exclusive access to the machine. An error says that this server can't run a
// registered extension, and must not go on.
func (m *Machine) LoadExtensions() error {
	x := execution{m: m, parts: m.Placement().All(), local: alone(m.Placement().All())}
	reg := extension.New(x.settings(), nil)
	for kv := range x.sources() {
		_, name, _ := extension.Parse(kv.Key())
		e, err := x.compile(name, kv)
		if err != nil {
			return err
		}
		reg = reg.With(e)
	}
	if err := m.holds(reg.Kept(nil)); err != nil {
		return err
	}
	m.extensions.Store(reg)
	m.ruled = extension.RuledBy(m.Placement().Settled())
	return nil
}

// compile makes an extension of a source that was registered, in the version of the
// language that it was registered for.
func (x *execution) compile(name string, source kvwire.KeyValue) (*extension.Extension, error) {
	language := 1
	if kv := (view{x}).Get(extension.LanguageKey(name)); kv.Exists() {
		language, _ = strconv.Atoi(string(kv.Value()))
	}
	if err := extension.CheckLanguage(name, language); err != nil {
		return nil, err
	}
	code, err := x.m.Codes.load(language, source.Value())
	if err != nil {
		return nil, fmt.Errorf("an extension that was registered can't be compiled: %w", extension.Refuse(name, err))
	}
	return code.As(name, source.ModRevision()), nil
}

// manage prepares a put of a key under /em/: it may refuse it, or change it. The
// put is then carried out like any other; managed follows.
func (x *execution) manage(p *put) error {
	role, name, client := extension.Parse(p.Key)
	if role == extension.Outside {
		return nil
	}
	switch role {
	case extension.Source:
		return x.register(name, p.Value)
	case extension.Settings:
		return x.limit(p)
	}
	if name != "" && x.m.Extensions().Get(name) == nil {
		return fault.NoExtension.With(fmt.Sprintf("stoa: there is no extension %q; register it with: put %s SOURCE", name, extension.SourceKey(name)))
	}
	switch {
	case role == extension.Status:
		return x.changeStanding(p)
	case role == extension.Ack, role == extension.AckOf && client == x.client:
		if len(p.Value) > 0 && string(p.Value) != extension.Once {
			return fault.BadExtension.With(fmt.Sprintf("stoa: %s: the value must be empty, or %q", p.Key, extension.Once))
		}
		p.Key = extension.AckKey(name, x.client)
		if p.Lease == 0 {
			if x.foreign(x.lease, x.user) && x.m.Level() >= levelOfOwnLeases {
				return fault.PermissionDenied
			}
			p.Lease = x.lease
		}
		return nil
	}
	return fault.BadExtension.With(fmt.Sprintf("stoa: %s can't be put: there are %sNAME (the source), %sNAME/ack, %sNAME/state and %s",
		p.Key, extension.Root, extension.Root, extension.Root, extension.LimitsKey))
}

// register prepares the registration of a source.
func (x *execution) register(name string, source []byte) error {
	if err := extension.CheckLanguage(name, x.language); err != nil {
		x.fatal(err)
	}
	reg := x.m.Extensions()
	if err := reg.Limits.AdmitSource(name, len(source)); err != nil {
		return err
	}
	code := registered(reg, name, x.language, source)
	if code == nil {
		var err error
		if code, err = x.m.Codes.get(x.language, source); err != nil {
			return extension.Refuse(name, err)
		}
	}
	x.fresh = code.As(name, x.rev)
	if err := mayRegister(x.user, &x.fresh.Code); err != nil {
		return err
	}
	if err := reg.Admit(x.fresh); err != nil {
		return err
	}
	if err := x.m.holds(reg.Kept(x.fresh)); err != nil {
		x.fatal(err)
	}
	return nil
}

// holds says that this server has no memory for what the cluster has agreed on.
func (m *Machine) holds(kept int64) error {
	if m.ExtensionMemory > 0 && kept > m.ExtensionMemory {
		return fmt.Errorf("the extensions of the cluster keep up to %d bytes of memory, and this server may use %d in all (--memory-limit): start it again with more",
			kept, m.ExtensionMemory)
	}
	return nil
}

// mayRegister refuses a source whose handlers could do what its user may not, or see it.
func mayRegister(u *auth.User, c *extension.Code) error {
	for _, p := range c.Scope {
		key, end := p.Bounds()
		if err := u.MayChange(key, end, true); err != nil {
			return err
		}
	}
	for _, s := range c.Operations {
		if err := u.MayRead(s.Pattern.Bounds()); err != nil {
			return err
		}
	}
	for _, s := range c.Events {
		if err := u.MayRead(s.Pattern.Bounds()); err != nil {
			return err
		}
	}
	return nil
}

// limit checks limits that are to be set. They must have no lease: it would delete them
// without a check that the registered extensions still fit.
func (x *execution) limit(p *put) error {
	l, err := x.m.extensionBounds().Parse(p.Value)
	if err == nil {
		err = x.m.Extensions().Hold(l, func(*extension.Extension) bool { return false })
	}
	if err == nil && (p.Lease != 0 || p.IgnoreLease) {
		err = fmt.Errorf("stoa: %s can't have a lease", p.Key)
	}
	if err != nil {
		return fault.BadExtension.With(err.Error())
	}
	return nil
}

// changeStanding lets operators put the two words.
func (x *execution) changeStanding(p *put) error {
	switch string(p.Value) {
	case "enabled":
	case "disabled":
		p.Value = []byte(extension.Standing{Disabled: true, Reason: "by " + x.client}.String())
	default:
		return fault.BadExtension.With(fmt.Sprintf("stoa: %s: the value must be \"enabled\" or \"disabled\"", p.Key))
	}
	return nil
}

// managed follows up on a command that changed keys under /em/: a new source gets
// its owner, the keys of an old one are deleted.
func (x *execution) managed() {
	last := x.sub
	for sub := range last {
		c := x.changed(sub)
		role, name, _ := extension.Parse(c.Kv.Key())
		if name != "" {
			x.m.audiences.forget(name)
		}
		switch {
		case role == extension.Settings:
			x.renew = true
		case role != extension.Source:
		case c.Delete:
			x.renew, x.renamed = true, append(x.renamed, name)
			x.deleteBelow(extension.Home(name))
		default:
			x.renew, x.renamed = true, append(x.renamed, name)
			x.adopt(name, c.Prev.Exists() && bytes.Equal(c.Prev.Value(), c.Kv.Value()))
		}
	}
	x.touched = false
}

// adopt records the client that has registered a source as its owner. Acknowledgements
// given to another owner's source don't count for this one.
//
// The same source again keeps its owner: clients that all register the same extension
// when they start don't take it from each other.
func (x *execution) adopt(name string, same bool) {
	owner := x.client
	if owner == "" {
		owner = Anonymous
	}
	kv := (view{x}).Get(extension.OwnerKey(name))
	if !kv.Exists() || !same && string(kv.Value()) != owner {
		x.deleteBelow(extension.AckKey(name, ""))
		x.set(extension.OwnerKey(name), []byte(owner))
	}
	x.noteRegistrar(name)
	if standingOf(view{x}, extension.StateKey(name)) != (extension.Standing{}) {
		x.delete(extension.StateKey(name))
	}
	key, language := extension.LanguageKey(name), strconv.Itoa(x.language)
	if kv := (view{x}).Get(key); !kv.Exists() || string(kv.Value()) != language {
		x.set(key, []byte(language))
	}
}

// noteRegistrar records the user who has registered an extension, if there is one.
func (x *execution) noteRegistrar(name string) {
	key := extension.RegistrarKey(name)
	kv := (view{x}).Get(key)
	if x.user == nil {
		if kv.Exists() {
			x.delete(key)
		}
		return
	}
	if user := fmt.Sprintf("%d %s", x.user.ID, x.user.Name); string(kv.Value()) != user {
		x.set(key, []byte(user))
	}
}

// deleteBelow deletes the keys with a prefix that ends in a slash.
func (x *execution) deleteBelow(prefix []byte) {
	from, to := extension.Pattern(prefix).Bounds()
	for _, kv := range x.newest(from, to, 0) {
		x.delete(kv.Key())
	}
}

// renewRegistry rebuilds the registry from the current keys, and begins the transit that
// brings the keys of each extension together.
func (x *execution) renewRegistry() {
	reg := x.m.Extensions().Limited(x.settings())
	for _, name := range x.renamed {
		switch kv := (view{x}).Get(extension.SourceKey(name)); {
		case !kv.Exists():
			reg = reg.Without(name)
		case x.fresh != nil && x.fresh.Name == name:
			reg = reg.With(x.fresh)
		}
	}
	x.renew, x.renamed = false, nil
	x.m.extensions.Store(reg)
	x.mergeSessions()
	x.place()
}

// settings are the limits that the keys say.
func (x *execution) settings() extension.Limits {
	if kv := (view{x}).Get([]byte(extension.LimitsKey)); kv.Exists() {
		return x.m.extensionBounds().Stored(kv.Value())
	}
	return x.m.extensionBounds().Defaults
}

// sources yields the keys that hold sources, skipping the keys below them.
func (x *execution) sources() func(yield func(kvwire.KeyValue) bool) {
	return func(yield func(kvwire.KeyValue) bool) {
		next := []byte(extension.Root)
		for {
			kvs := (view{x}).Range(next, []byte(extension.End), 1)
			if len(kvs) == 0 {
				return
			}
			role, name, _ := extension.Parse(kvs[0].Key())
			switch role {
			case extension.Source:
				if !yield(kvs[0]) {
					return
				}
				next = append(extension.SourceKey(name), 0)
			default:
				if next = append(append([]byte(nil), kvs[0].Key()...), 0); name != "" {
					_, next = extension.Pattern(extension.Home(name)).Bounds() // past all that is below it
				}
			}
		}
	}
}

// managedParts are the partitions that a write under /em/ needs beside that of its
// keys: all of them, where the registry can change.
func (m *Machine) managedParts(key, end []byte) placement.Set {
	if !extension.Touches(key, end) {
		return 0
	}
	if len(end) == 0 {
		if role, _, _ := extension.Parse(key); role != extension.Source && role != extension.Settings {
			return 0
		}
	}
	return m.Placement().All()
}
