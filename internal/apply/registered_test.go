package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
)

// crowd is a machine with many extensions: apart from each other, or with shared scopes
// and the events of all of them in all.
func crowd(t testing.TB, partitions, n, shared int) *rig {
	r := newRig(partitions)
	r.quiet = true
	for i := range n {
		r.carry(t, sourcePut(fmt.Sprint("e", i), member(i, shared)))
	}
	return r
}

func member(i, shared int) string {
	scope := fmt.Sprintf(`"/e%d/"`, i)
	on := scope
	if shared > 0 {
		on, scope = `"/s0/"`, ""
		for s := range shared {
			scope += fmt.Sprintf(`"/s%d/", `, s)
		}
	}
	return fmt.Sprintf(`return { scope = { %s }, operations = { { op = "put", prefix = %s } },
		events = { { event = "deleted", prefix = %s } }, put = function(r) return %d end, event = function() end }`, scope, on, on, i)
}

// carry plans and applies a request, with what it moves.
func (r *rig) carry(t testing.TB, req proto.Message) {
	who := func() (string, int64) { return "alice", 0 }
	p := r.Plan(kindOf(req), req, who)
	e := command.Entry{Commands: []command.Command{p.Command(kindOf(req), cmd(req).Body)}}
	if len(r.Stores) > 1 {
		for _, s := range r.Stores {
			e.Stamp = max(e.Stamp, s.Rev()+1)
		}
	}
	r.entry(&e, p.Parts, func(_ int, res Result) { require.NoError(t, res.Err) })
	r.events = nil
	for r.Placement().Transit() != nil {
		stamp := int64(0)
		for _, s := range r.Stores {
			stamp = max(stamp, s.Rev()+1)
		}
		r.step(stamp, 1000, nil)
	}
}

// BenchmarkRegistered is what the extensions that there are cost: the registration of
// another one, its removal, and plain requests beside them and in their scope.
func BenchmarkRegistered(b *testing.B) {
	for _, c := range []struct{ partitions, n, shared int }{
		{4, 0, 0}, {4, 1000, 0}, {4, 10_000, 0}, {4, 400, 1}, {4, 60, 100}, {4, 300, 100},
	} {
		r := crowd(b, c.partitions, c.n, c.shared)
		name := func(what string) string {
			return fmt.Sprintf("%s/%d-partitions/%d-sharing-%d", what, c.partitions, c.n, c.shared)
		}
		b.Run(name("register"), func(b *testing.B) {
			source := member(c.n, c.shared)
			_, _ = r.Codes.get(1, []byte(source))
			for b.Loop() {
				r.carry(b, sourcePut("new", source))
				b.StopTimer()
				r.carry(b, &pb.DeleteRangeRequest{Key: []byte("/em/new")})
				b.StartTimer()
			}
		})
		b.Run(name("remove"), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r.carry(b, sourcePut("new", member(c.n, c.shared)))
				b.StartTimer()
				r.carry(b, &pb.DeleteRangeRequest{Key: []byte("/em/new")})
			}
		})
		for _, key := range []string{"/registry/pods/key", "/s0/key"} {
			b.Run(name("put"+key), func(b *testing.B) {
				put := &pb.PutRequest{Key: []byte(key)}
				for b.Loop() {
					r.Plan(command.Put, put, func() (string, int64) { return "bob", 0 })
				}
			})
		}
		b.Run(name("restart"), func(b *testing.B) {
			for b.Loop() {
				r.Codes = NewCodes(nil) // as in a new process
				require.NoError(b, r.LoadExtensions())
			}
		})
	}
}

// A server that hasn't applied higher limits yet refuses no source because of those that it
// knows: the log decides.
func TestTheLogDecidesWhatFitsTheLimits(t *testing.T) {
	w := newTwins(t, 1)
	put := sourcePut("large", member(0, 0)+"--"+strings.Repeat("x", 100<<10))
	require.NoError(t, w.first.Verify(put, 0))
	r, _ := w.ask(who{}, put)
	require.ErrorContains(t, r.Err, "the limit is 65536")
	w.limit(`{"source": 131072}`)
	w.succeed(put)
	require.Error(t, w.first.Verify(sourcePut("bad", `return {`), 0))
	w.requireEqual()
}
