package apply

import (
	"crypto/sha256"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// Compiling a source takes up to tens of milliseconds, and must not block the
// partitions. So it happens beside apply: on the server that takes the put in before it is
// proposed ([Machine.Verify]), on the others when the entry comes, before it is committed
// ([Machine.Expect]). Apply finds the result here. If it doesn't, it compiles; the result
// is the same, since it is a function of the source.

// codes are the sources that were compiled last, by their hash. Any number of goroutines
// may use it; no lock is held while a source is compiled but that of queue.
type codes struct {
	queue sync.Mutex // of those that can wait: one is compiled at a time

	mu   sync.Mutex
	last []*compilation // the latest used last
}

// Bounds of the compiled sources that are kept beside the registry.
const (
	maxCodes       = 64
	maxCodesMemory = 16 << 20
)

type compilation struct {
	of   sourceHash
	once sync.Once
	code *extension.Code
	err  error
	size int64 // once it is done; under the lock of codes
}

type sourceHash struct {
	language int
	sum      [sha256.Size]byte
}

// get is for apply: it doesn't wait for other sources.
func (c *codes) get(language int, source []byte) (*extension.Code, error) {
	return c.finish(c.find(language, source), language, source)
}

// ahead compiles a source that apply may soon ask for.
func (c *codes) ahead(language int, source []byte) (*extension.Code, error) {
	found := c.find(language, source)
	c.queue.Lock()
	defer c.queue.Unlock()
	return c.finish(found, language, source)
}

func (c *codes) find(language int, source []byte) *compilation {
	of := sourceHash{language, sha256.Sum256(source)}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.last, func(d *compilation) bool { return d.of == of })
	found := &compilation{of: of}
	if at >= 0 {
		found = c.last[at]
		c.last = slices.Delete(c.last, at, at+1)
	}
	c.last = append(c.last, found)
	return found
}

func (c *codes) finish(d *compilation, language int, source []byte) (*extension.Code, error) {
	d.once.Do(func() {
		d.code, d.err = extension.CompileCode(language, source)
		size := int64(len(source))
		if d.code != nil {
			size = d.code.Memory
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		d.size = size
		c.evict()
	})
	return d.code, d.err
}

// evict forgets those that weren't used for the longest time.
func (c *codes) evict() {
	sum := int64(0)
	for i := len(c.last) - 1; i >= 0; i-- {
		if sum += c.last[i].size; sum > maxCodesMemory || len(c.last)-i > maxCodes {
			c.last = slices.Delete(c.last, 0, i+1)
			return
		}
	}
}

// Verify says whether a put would be refused as the source of an extension, so
// that a server can check it before it is proposed. It takes the time of compiling and of
// the delays of [Config.Paced].
func (m *Machine) Verify(req *pb.PutRequest) error {
	role, name, _ := extension.Parse(req.GetKey())
	if role != extension.Source {
		return nil
	}
	reg := m.Extensions()
	if err := reg.Limits.AdmitSource(name, len(req.GetValue())); err != nil {
		return err
	}
	var code *extension.Code
	var err error
	m.Paced(func() { code, err = m.codes.ahead(extension.Language, req.GetValue()) })
	if err != nil {
		return extension.Refuse(name, err)
	}
	return reg.Admit(code.As(name, 0))
}

// Expect prepares for an entry that will probably be executed soon. It takes as long as
// compiling the sources does that the entry registers; any goroutine may call it.
func (m *Machine) Expect(e *command.Entry) {
	for i := range e.Commands {
		if language, source := sourceIn(&e.Commands[i]); source != nil {
			_, _ = m.codes.ahead(language, source)
		}
	}
}

// sourceIn is the source that a command registers, nil if it doesn't.
func sourceIn(c *command.Command) (language int, source []byte) {
	kind, body := c.Kind, c.Body
	if kind == command.InSession {
		q, err := command.DecodeSequenced(body)
		if err != nil {
			return 0, nil
		}
		kind, body = q.Kind, q.Body
	}
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
