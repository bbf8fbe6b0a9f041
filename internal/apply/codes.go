package apply

import (
	"slices"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// Compiling a source takes up to tens of milliseconds, and must not block the
// partitions. So it happens beside apply, on all servers before the put is proposed
// ([Machine.Verify], [Machine.Prepare]); on a server that couldn't be reached then, when the
// entry comes, before it is committed ([Machine.Expect]). Apply finds the result here. If
// it doesn't, it compiles; the result is the same, since it is a function of the source.

// Codes are the sources that a server has compiled last, by their hash. Any number of goroutines
// may use it; no lock is held while a source is compiled but that of queue.
type Codes struct {
	queue sync.Mutex // of those that can wait: one is compiled at a time
	pace  func(hurry <-chan struct{}) func()

	late atomic.Int64 // how often apply had to wait

	mu   sync.Mutex
	last []*compilation // the latest used last
}

// NewCodes returns none. pace is asked before a source is compiled that nothing waits for yet, and returns what
// is called every few hundred microseconds meanwhile, to leave the processor to other
// work. It pauses no longer once hurry is closed. nil: no pauses.
func NewCodes(pace func(hurry <-chan struct{}) (pause func())) *Codes { return &Codes{pace: pace} }

// Bounds of the compiled sources that are kept beside the registry.
const (
	maxCodes       = 64
	maxCodesMemory = 16 << 20
)

type compilation struct {
	of      extension.SourceID
	once    sync.Once
	done    atomic.Bool
	hurry   func() // has it go on without pauses, since apply waits for it; closes hurried
	hurried <-chan struct{}
	code    *extension.Code
	err     error
	size    int64 // once it is done; under the lock of Codes
}

// get is for apply: it doesn't wait for other sources.
func (c *Codes) get(language int, source []byte) (*extension.Code, error) {
	found := c.find(language, source)
	if !found.done.Load() {
		c.late.Add(1)
	}
	return c.atOnce(found, language, source)
}

// load is for what was registered before this machine began.
func (c *Codes) load(language int, source []byte) (*extension.Code, error) {
	return c.atOnce(c.find(language, source), language, source)
}

func (c *Codes) atOnce(d *compilation, language int, source []byte) (*extension.Code, error) {
	d.hurry()
	return c.finish(d, language, source, nil)
}

// ahead compiles a source that apply may soon ask for.
func (c *Codes) ahead(language int, source []byte) (*extension.Code, error) {
	found := c.find(language, source)
	if found.done.Load() {
		return found.code, found.err
	}
	c.queue.Lock()
	defer c.queue.Unlock()
	if c.pace == nil {
		return c.finish(found, language, source, nil)
	}
	return c.finish(found, language, source, c.pace(found.hurried))
}

func (c *Codes) find(language int, source []byte) *compilation {
	of := extension.SourceOf(language, source)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.last, func(d *compilation) bool { return d.of == of })
	var found *compilation
	if at >= 0 {
		found = c.last[at]
		c.last = slices.Delete(c.last, at, at+1)
	} else {
		hurried := make(chan struct{})
		found = &compilation{of: of, hurried: hurried, hurry: sync.OnceFunc(func() { close(hurried) })}
	}
	c.last = append(c.last, found)
	return found
}

func (c *Codes) finish(d *compilation, language int, source []byte, pause func()) (*extension.Code, error) {
	d.once.Do(func() {
		d.code, d.err = extension.CompilePaced(language, source, pause)
		size := int64(len(source))
		if d.code != nil {
			size = d.code.Memory
		}
		d.done.Store(true)
		c.mu.Lock()
		defer c.mu.Unlock()
		d.size = size
		c.evict()
	})
	return d.code, d.err
}

// evict forgets those that weren't used for the longest time.
func (c *Codes) evict() {
	sum := int64(0)
	for i := len(c.last) - 1; i >= 0; i-- {
		if sum += c.last[i].size; sum > maxCodesMemory || len(c.last)-i > maxCodes {
			c.last = slices.Delete(c.last, 0, i+1)
			return
		}
	}
}

// Verify compiles the source of an extension before a put of it is proposed, and returns the
// error if that fails. Everything else the log decides: this server may not have applied the
// limits or the permissions yet that make the put a good one. What is refused by those that it
// knows isn't compiled. It takes the time of [Config.Precompile], unless the extension is
// registered with the same source. The user is a credential, or 0.
func (m *Machine) Verify(req *pb.PutRequest, user uint64) error {
	role, name, _ := extension.Parse(req.GetKey())
	if role != extension.Source {
		return nil
	}
	if u, err := m.Auth().Authorize(user); err != nil || u.MayWrite(req.GetKey(), nil) != nil {
		return nil
	}
	reg, language := m.Extensions(), m.language()
	if reg.Limits.AdmitSource(name, len(req.GetValue())) != nil || registered(reg, name, language, req.GetValue()) != nil {
		return nil
	}
	if err := m.Precompile(language, req.GetValue()); err != nil {
		return err
	}
	if _, err := m.Codes.ahead(language, req.GetValue()); err != nil {
		return extension.Refuse(name, err)
	}
	return nil
}

// registered is the code of an extension that is registered with this very source, or nil.
func registered(reg *extension.Registry, name string, language int, source []byte) *extension.Code {
	if e := reg.Get(name); e != nil && e.Of == extension.SourceOf(language, source) {
		return &e.Code
	}
	return nil
}

// Prepare compiles a source that may be registered soon; any goroutine may call it. An
// error says that it would be refused.
func (m *Machine) Prepare(language int, source []byte) error {
	_, err := m.Codes.ahead(language, source)
	return err
}

// LateCompilations is how often apply had to wait for a source to be compiled, on this server.
func (m *Machine) LateCompilations() int64 { return m.Codes.late.Load() }

// Expect prepares for an entry that will probably be executed soon. It takes as long as
// compiling the sources does that the entry registers; any goroutine may call it.
func (m *Machine) Expect(e *command.Entry) {
	for i := range e.Commands {
		if language, source := sourceIn(&e.Commands[i]); source != nil {
			_ = m.Prepare(language, source)
		}
	}
}

// sourceIn is the source that a command registers, nil if it doesn't.
func sourceIn(c *command.Command) (language int, source []byte) {
	kind, body := c.Inner()
	if kind != command.Extended {
		return 0, nil
	}
	call, err := command.DecodeCall(body)
	if err != nil || call.Kind != command.Put {
		return 0, nil
	}
	p, err := kvwire.ReadPut(call.Body)
	if err != nil {
		return 0, nil
	}
	if role, _, _ := extension.Parse(p.Key); role != extension.Source {
		return 0, nil
	}
	return call.Language, p.Value
}
