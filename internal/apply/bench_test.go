package apply

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

const benchBatch = 256

// benchEntry is a batch of puts to a directory, each a value of 256 bytes.
func benchEntry(keys int) [][]byte {
	var out [][]byte
	for from := 0; from < keys; from += benchBatch {
		e := command.Entry{Origin: 1, Seq: 1}
		for i := range benchBatch {
			e.Commands = append(e.Commands, cmd(&pb.PutRequest{Key: fmt.Appendf(nil, "/registry/pods/key-%07d", from+i), Value: make([]byte, 256)}))
		}
		out = append(out, e.AppendTo(nil))
	}
	return out
}

func benchMachine() *Machine {
	return New(Config{Stores: []*store.Store{store.New(nil)}, Leases: lease.NewTable(), Placement: placement.New(1)})
}

// BenchmarkPuts measures one put of a batch, from the entry's bytes to its
// answer: on the leader, on a follower, and for comparison the store alone.
// Overwritten values would pile up in the store's history without a flusher, so
// a fresh store is taken for each pass over the keys.
func BenchmarkPuts(b *testing.B) {
	entries := benchEntry(1 << 15)
	run := func(b *testing.B, pass func(m *Machine, raw []byte)) {
		b.ReportAllocs()
		m := benchMachine()
		for i := 0; i < b.N; i += benchBatch {
			if n := i / benchBatch; n > 0 && n%(2*len(entries)) == 0 {
				b.StopTimer()
				m = benchMachine()
				b.StartTimer()
			}
			pass(m, entries[i/benchBatch%len(entries)])
		}
	}
	decode := func(raw []byte) *command.Entry {
		e, err := command.Decode(raw)
		if err != nil {
			b.Fatal(err)
		}
		return &e
	}
	b.Run("answered", func(b *testing.B) {
		reply := func(int, Result) {}
		run(b, func(m *Machine, raw []byte) { m.Local(0, 1, 1, decode(raw), reply) })
	})
	b.Run("unanswered", func(b *testing.B) {
		run(b, func(m *Machine, raw []byte) { m.Local(0, 1, 1, decode(raw), nil) })
	})
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("beside-%d-extensions", n), func(b *testing.B) {
			list := benchExtensions(b, n)
			reply := func(int, Result) {}
			b.ResetTimer()
			run(b, func(m *Machine, raw []byte) {
				m.extensions.Store(list)
				m.Local(0, 1, 1, decode(raw), reply)
			})
		})
	}
	b.Run("store-alone", func(b *testing.B) {
		run(b, func(m *Machine, raw []byte) {
			s := m.Stores[0]
			e := decode(raw)
			s.Lock()
			for i := range e.Commands {
				p, _ := kvwire.ReadPut(e.Commands[i].Body)
				s.Put(store.Revision{Main: s.Rev() + 1}, p.Key, p.Value, 0)
			}
			s.Unlock()
		})
	})
}

// benchExtensions are n extensions of other keys, with operations and events of
// every kind.
func benchExtensions(b *testing.B, n int) *extension.Registry {
	var list []*extension.Extension
	for i := range n {
		e, err := extension.Compile(fmt.Sprint("e", i), fmt.Appendf(nil, `return {
			scope = { "/e/%[1]d/" },
			operations = { { op = "read", prefix = "/e/%[1]d/" }, { op = "put", prefix = "/e/%[1]d/" }, { op = "delete", prefix = "/e/%[1]d/" } },
			events = { { event = "created", prefix = "/e/%[1]d/" }, { event = "modified", prefix = "/e/%[1]d/" }, { event = "deleted", prefix = "/e/%[1]d/" } },
			read = function() end, put = function() end, delete = function() end, event = function() end,
		}`, i), int64(i+1), extension.Defaults)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, e)
	}
	return extension.New(extension.Defaults, list)
}

// BenchmarkPlan is what routing costs a server for each write and read.
func BenchmarkPlan(b *testing.B) {
	put := &pb.PutRequest{Key: []byte("/registry/pods/key-0000777")}
	get := &pb.RangeRequest{Key: put.Key}
	who := func() (string, int64) { return "", 0 }
	for name, reg := range map[string]*extension.Registry{"none": extension.New(extension.Defaults, nil), "100": benchExtensions(b, 100), "10000": benchExtensions(b, 10_000)} {
		m := benchMachine()
		m.extensions.Store(reg)
		b.Run("put/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Plan(command.Put, put, who)
			}
		})
		b.Run("get/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.PlanRead(command.Range, get, who)
			}
		})
	}
}

// BenchmarkCounter is one call of an extension that increments a counter.
func BenchmarkCounter(b *testing.B) {
	m := benchMachine()
	source := `return { scope = { "/ctr" }, operations = { { op = "read", key = "/ctr-increment" } },
		read = function() local n = tonumber(get("/ctr") or "0") + 1; put("/ctr", n); return n end }`
	e, err := extension.Compile("counter", []byte(source), 1, extension.Defaults)
	if err != nil {
		b.Fatal(err)
	}
	m.extensions.Store(extension.New(extension.Defaults, []*extension.Extension{e}))
	call := &command.Call{Kind: command.Range, Client: Anonymous, Name: "counter", Version: 1, Body: cmd(&pb.RangeRequest{Key: []byte("/ctr-increment")}).Body}
	entry := &command.Entry{Commands: []command.Command{{Kind: command.Extended, Body: call.AppendTo(nil)}}}
	reply := func(_ int, r Result) {
		if r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%(1<<16) == 0 { // without a flush the history would only grow
			b.StopTimer()
			reg := m.extensions.Load()
			m = benchMachine()
			m.extensions.Store(reg)
			b.StartTimer()
		}
		m.Local(0, 1, 1, entry, reply)
	}
}

// BenchmarkLargeWrites is one call of an extension that writes all that the highest limits allow.
func BenchmarkLargeWrites(b *testing.B) {
	limits := extension.Limits{
		Steps: 500_000, Bytes: 16 << 20, Depth: 64, Operations: 20_000, Keys: 2000, WriteBytes: 2 << 20,
		Source: 64 << 10, Memory: 4 << 20, MemoryTotal: 64 << 20,
	}
	source := `return { scope = { "/x/" }, operations = { { op = "put", key = "/x/go" } },
		put = function() local v = ("x"):rep(1040) for i = 1, 2000 do put("/x/" .. i, v) end end }`
	e, err := extension.Compile("large", []byte(source), 1, limits)
	if err != nil {
		b.Fatal(err)
	}
	call := &command.Call{Kind: command.Put, Client: Anonymous, Name: "large", Version: 1, Body: cmd(&pb.PutRequest{Key: []byte("/x/go")}).Body}
	entry := &command.Entry{Commands: []command.Command{{Kind: command.Extended, Body: call.AppendTo(nil)}}}
	reply := func(_ int, r Result) {
		if r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	var m *Machine
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%32 == 0 { // as above
			b.StopTimer()
			m = benchMachine()
			m.extensions.Store(extension.New(limits, []*extension.Extension{e}))
			m.Local(0, 1, 1, entry, reply)
			b.StartTimer()
		}
		m.Local(0, 1, 1, entry, reply)
	}
}

// BenchmarkTxns measures what Kubernetes writes with: compare a key's revision,
// put it, else read it.
func BenchmarkTxns(b *testing.B) {
	key, value := []byte("/registry/pods/default/web"), make([]byte, 256)
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Result: pb.Compare_GREATER, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: -1}}},
		Success: []*pb.RequestOp{operationOf(&pb.PutRequest{Key: key, Value: value})},
		Failure: []*pb.RequestOp{operationOf(&pb.RangeRequest{Key: key})},
	}
	var e command.Entry
	for range benchBatch {
		e.Commands = append(e.Commands, cmd(txn))
	}
	for name, reply := range map[string]Reply{"answered": func(int, Result) {}, "unanswered": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			m := benchMachine()
			for i := 0; i < b.N; i += benchBatch {
				if i%(1<<18) == 0 {
					m = benchMachine()
				}
				m.Local(0, 1, 1, &e, reply)
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	m := benchMachine()
	for _, raw := range benchEntry(1 << 15) {
		e, _ := command.Decode(raw)
		m.Local(0, 1, 1, &e, nil)
	}
	req := &pb.RangeRequest{Key: []byte("/registry/pods/key-0000777")}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Range(req, placement.Of(0), 0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSequencedPuts measures what a put of a session costs beside the same put
// outside sessions, for 64 sessions that each have 64 puts under way.
func BenchmarkSequencedPuts(b *testing.B) {
	const sessions, window = 64, 64
	reply := func(int, Result) {}
	for _, kind := range []string{"plain", "sequenced"} {
		for _, who := range []string{"answered", "unanswered"} {
			b.Run(kind+"/"+who, func(b *testing.B) {
				answer := reply
				if who == "unanswered" {
					answer = nil
				}
				b.ReportAllocs()
				const keys = 1 << 15
				var entries [][]byte
				var m *Machine
				for i := 0; i < b.N; i += benchBatch {
					if i%(2*keys) == 0 {
						b.StopTimer()
						m = benchMachine()
						for id := range int64(sessions) {
							m.sessions[0].open(id + 1)
						}
						if entries == nil {
							entries = benchSequenced(keys, 2*keys, sessions, window, kind == "sequenced")
						}
						b.StartTimer()
					}
					e, err := command.Decode(entries[i/benchBatch%len(entries)])
					if err != nil {
						b.Fatal(err)
					}
					m.Local(0, 1, 1, &e, answer)
				}
			})
		}
	}
}

// burst is how many puts of a session come together: a client's batch.
const burst = 8

func benchSequenced(keys, puts, sessions, window int, sequenced bool) (out [][]byte) {
	for from := 0; from < puts; from += benchBatch {
		e := command.Entry{Origin: 1, Seq: 1}
		for i := from; i < from+benchBatch; i++ {
			c := cmd(&pb.PutRequest{Key: fmt.Appendf(nil, "/registry/pods/key-%07d", i%keys), Value: make([]byte, 256)})
			if sequenced {
				q := command.Sequenced{Session: int64(i/burst%sessions + 1), Seq: uint64(i/(burst*sessions)*burst + i%burst + 1), Kind: c.Kind, Body: c.Body}
				q.Pred = q.Seq - 1
				q.Answered = max(q.Seq, uint64(window)) - uint64(window)
				c = command.Command{Kind: command.InSession, Body: q.AppendTo(nil)}
			}
			e.Commands = append(e.Commands, c)
		}
		out = append(out, e.AppendTo(nil))
	}
	return out
}

// A range of everything, which lies in several partitions.
func BenchmarkRangeOfAll(b *testing.B) {
	for _, parts := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("P=%d", parts), func(b *testing.B) {
			placed := placement.New(parts)
			stores := make([]*store.Store, parts)
			for p := range stores {
				stores[p] = store.New(nil)
			}
			for i := range 100_000 {
				key := fmt.Appendf(nil, "/dir-%03d/key-%04d", i/100, i%100)
				stores[placed.Partition(key)].Put(store.Revision{Main: int64(i + 2)}, key, make([]byte, 256), 0)
			}
			m := New(Config{Stores: stores, Leases: lease.NewTable(), Placement: placed})
			req := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := m.Range(req, placed.All(), 200_000, 0)
				if err != nil || len(resp.Kvs) != 100_000 {
					b.Fatal(len(resp.Kvs), err)
				}
			}
		})
	}
}
