package extensions

import (
	"testing"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// shelf is a server's own store as a State.
type shelf struct {
	*store.Store
	rev int64
}

func (s *shelf) Range(key, end []byte, limit int) []kvwire.KeyValue {
	f, err := s.Store.Range(key, end, 0, limit)
	if err != nil {
		panic(err)
	}
	return f.Kvs
}

func (s *shelf) Count(key, end []byte) int {
	n, err := s.Store.Count(key, end, 0)
	if err != nil {
		panic(err)
	}
	return n
}

func (s *shelf) HasLease([]byte, int64) bool { return true }

func (s *shelf) Permits(_, _ []byte, _ bool) bool { return true }

func (s *shelf) commit(writes []extension.Write) {
	s.rev++
	for i, w := range writes {
		at := store.Revision{Main: s.rev, Sub: int64(i)}
		if w.Delete {
			s.Delete(at, w.Key)
		} else {
			s.PutMade(at, w.Kv)
		}
	}
}

// BenchmarkCalls is what a call of a recipe takes, with its writes: of the counter an
// increment, of the queue an element that comes and one that goes, beside 100 others.
func BenchmarkCalls(b *testing.B) {
	request := func(op extension.Op, key, value string) *extension.Request {
		return &extension.Request{Op: op, Key: []byte(key), Value: []byte(value), Client: "tester"}
	}
	for name, requests := range map[string][]*extension.Request{
		"counter": {request(extension.Read, "/ctr-increment", "")},
		"queue":   {request(extension.Put, "/queue/add", "an element of the queue"), request(extension.Put, "/queue/head", "")},
	} {
		b.Run(name, func(b *testing.B) {
			e, err := extension.Compile(name, []byte(Source(name)), 1, extension.Defaults)
			if err != nil {
				b.Fatal(err)
			}
			s := &shelf{}
			serve := func(r *extension.Request) {
				out, err := e.Operation(s, &extension.Defaults, s.rev+1, r, nil)
				if err != nil {
					b.Fatal(err)
				}
				s.commit(out.Writes)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%(1<<14) == 0 { // nothing flushes here: the history would only grow
					b.StopTimer()
					s = &shelf{Store: store.New(nil), rev: 1}
					for range 100 {
						serve(requests[0])
					}
					b.StartTimer()
				}
				for _, r := range requests {
					serve(r)
				}
			}
		})
	}
}
