package rpc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
)

// met is what a list of operations puts and deletes.
type met struct {
	puts []string
	dels []*pb.DeleteRangeRequest
}

func (m *met) deletes(key string) bool {
	return slices.ContainsFunc(m.dels, func(d *pb.DeleteRangeRequest) bool {
		return len(d.RangeEnd) == 0 && key == string(d.Key) || key >= string(d.Key) && key < string(d.RangeEnd)
	})
}

func (m *met) refuses(key string) bool { return slices.Contains(m.puts, key) || m.deletes(key) }

// plainly is the rule without anything that makes it fast.
func plainly(ops []*pb.RequestOp) (m met, ok bool) {
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			m.dels = append(m.dels, d)
		}
	}
	for _, op := range ops {
		t := op.GetRequestTxn()
		if t == nil {
			continue
		}
		then, ok := plainly(t.Success)
		orElse, ok2 := plainly(t.Failure)
		inside := slices.Concat(then.puts, orElse.puts)
		if !ok || !ok2 || slices.ContainsFunc(inside, m.refuses) {
			return m, false
		}
		m.puts = append(m.puts, inside...)
		m.dels = append(append(m.dels, then.dels...), orElse.dels...)
	}
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			if m.refuses(string(p.Key)) {
				return m, false
			}
			m.puts = append(m.puts, string(p.Key))
		}
	}
	return m, true
}

// Which transactions have operations that overlap is what the plain rule says.
func TestOverlapsAreThoseOfTheRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	key := func() string { return string(rune('a'+rng.IntN(26))) + string(rune('a'+rng.IntN(3))) }
	var list func(depth int) []*pb.RequestOp
	list = func(depth int) (all []*pb.RequestOp) {
		for range rng.IntN(4) {
			switch n := rng.IntN(6); {
			case n < 2 && depth > 0:
				all = append(all, opTxn(list(depth-1), list(depth-1)))
			case n == 2:
				all = append(all, opDel(key(), ""))
			case n == 3:
				all = append(all, opDel(key(), []string{key(), key(), "\x00", "b"}[rng.IntN(4)]))
			default:
				all = append(all, opPut(key()))
			}
		}
		return all
	}
	counts := map[bool]int{}
	for range 20_000 {
		r := &pb.TxnRequest{Success: list(3), Failure: list(1)}
		_, then := plainly(r.Success)
		_, orElse := plainly(r.Failure)
		ok := checkOverlaps(r) == nil
		require.Equal(t, then && orElse, ok, "%v", r)
		counts[ok]++
	}
	require.Greater(t, min(counts[true], counts[false]), 2000, "%v", counts)
}

// A request of 1 MB with as many operations as its size allows, half of them puts and half deletions of ranges, is checked in a
// second. (The product of both is 1.4 billion.)
func TestOverlapsOfManyOperations(t *testing.T) {
	n := 0
	lists := func(of func() *pb.RequestOp) *pb.RequestOp {
		var all []*pb.RequestOp
		for range 42 {
			all = append(all, of())
		}
		return opTxn(all, nil)
	}
	one := func() *pb.RequestOp {
		n++
		k := fmt.Sprintf("%05d", n)
		if n%2 == 0 {
			return opDel(k, k+"a")
		}
		return opPut(k)
	}
	r := lists(func() *pb.RequestOp { return lists(func() *pb.RequestOp { return lists(one) }) }).GetRequestTxn()
	require.Less(t, proto.Size(r), 3<<19)
	require.NoError(t, checkTxn(r, 128))
	before := processor()
	require.NoError(t, checkOverlaps(r))
	took := processor() - before
	t.Log(took)
	require.Less(t, took, 4*time.Second)
}

// processor is the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano())
}

// Transactions within transactions are refused by their number, or as the message is decoded, however deep they are: none is
// gone into.
func TestDeepTransactions(t *testing.T) {
	for _, depth := range []int{200, 9_000, 180_000} {
		var r pb.TxnRequest
		err := codec{sessionwire.Codec(), nil}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(deep(depth))}, &r)
		if err == nil {
			err = checkTxn(&r, 128)
		}
		require.Error(t, err, depth)
	}
}

// deep is transactions within each other, encoded.
func deep(n int) (b []byte) {
	for range n { // backwards
		for _, tag := range []byte{4<<3 | 2, 2<<3 | 2} {
			var length []byte
			for l := len(b); ; l >>= 7 {
				if l < 128 {
					length = append(length, byte(l))
					break
				}
				length = append(length, byte(l)|128)
			}
			slices.Reverse(length)
			b = append(append(b, length...), tag)
		}
	}
	slices.Reverse(b)
	return b
}
