package differential

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/test/process"
)

type shape struct {
	nodes, parts int
	sidecar      bool     // between the clients and the server under test
	namespace    string   // of the sidecar's clients
	cache        []string // prefixes that the sidecar keeps
	args         []string // of both servers
}

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.nodes, s.parts) }

func shapes(t *testing.T) []shape {
	t.Helper()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	all := []shape{{nodes: 1, parts: 1}, {nodes: 1, parts: 2}, {nodes: 1, parts: 4}, {nodes: 3, parts: 1}, {nodes: 3, parts: 3}}
	switch {
	case !bin.Stoa:
		all = []shape{{nodes: 1, parts: 1}, {nodes: 3, parts: 1}}
	case testing.Short():
		all = []shape{{nodes: 1, parts: 1}, {nodes: 3, parts: 3}}
	}
	if asked := os.Getenv("STOA_COMPAT_MATRIX"); asked != "" {
		all = nil
		for _, f := range strings.Split(asked, ",") {
			var s shape
			_, err := fmt.Sscanf(f, "%dx%d", &s.nodes, &s.parts)
			require.NoError(t, err)
			all = append(all, s)
		}
	}
	return all
}

// startPair starts both clusters. They outlive a rapid check but not the test.
func startPair(t *testing.T, s shape) *pair {
	t.Helper()
	ref, err := process.Choose("etcd")
	require.NoError(t, err)
	sut, err := process.UnderTest()
	require.NoError(t, err)
	start := func(name string, bin process.Binary) *side {
		dir, err := process.TempDir("differential-" + name)
		require.NoError(t, err)
		c, err := process.Start(context.Background(), process.Spec{Binary: bin, Nodes: s.nodes, Partitions: s.parts, Dir: dir, Args: s.args})
		require.NoError(t, err)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("data and logs of %s: %s", name, dir)
				return
			}
			os.RemoveAll(dir)
		})
		side, err := newSide(name, c)
		require.NoError(t, err)
		return side
	}
	if s.sidecar {
		start = throughSidecar(t, s, start)
	}
	p := newPair(start("etcd", ref), start("sut", sut), s.parts == 1)
	t.Cleanup(p.close)
	return p
}

func TestDrawnOperations(t *testing.T) {
	for _, s := range shapes(t) {
		t.Run(s.String(), func(t *testing.T) { drawn(t, s) })
	}
}

func drawn(t *testing.T, s shape) (p *pair) {
	operations := 0
	rapid.Check(t, func(rt *rapid.T) {
		if p == nil { // at first, and whenever the two have come apart
			p = startPair(t, s)
		}
		ok := false
		defer func() {
			if !ok {
				p.close()
				p = nil
			}
		}()
		n := sequence(rt, p, s)
		operations += n
		ok = true
	})
	t.Logf("%d operations", operations)
	return p
}

// sequence draws and compares operations from a state without keys and leases.
func sequence(rt *rapid.T, p *pair, s shape) (operations int) {
	check := func(err error) {
		if err != nil {
			rt.Fatal(err)
		}
	}
	for _, id := range leaseIDs {
		check(p.do(0, &pb.LeaseGrantRequest{ID: id, TTL: 900}))
	}
	var w *watchPair
	n := rapid.IntRange(5, 80).Draw(rt, "operations")
	for i := range n {
		st := rapid.Custom(func(t *rapid.T) step {
			d := &drawing{T: t, current: p.revs.current(), dense: p.dense}
			return d.step(s.nodes, i)
		}).Draw(rt, "step")
		if st.watch != nil && (w == nil || st.another) {
			var err error
			w, err = p.openWatch(st.server)
			check(err)
		}
		switch {
		case st.watch != nil:
			check(p.ask(w, st.watch))
		case st.request == nil:
			check(p.compareWatches())
		case s.namespace != "" && deletesFromOn(st.request):
		default:
			check(perform(p, st))
		}
	}
	check(p.compareWatches())
	check(p.empty(leaseIDs))
	return n
}

// deletesFromOn reports whether a transaction deletes everything from a key on. etcd doesn't see that
// such a deletion has a key that the same branch puts, since the end of the range, a zero byte, is
// below its beginning. In a namespace the range has another end, and the request is refused.
func deletesFromOn(m proto.Message) bool {
	txn, _ := m.(*pb.TxnRequest)
	for _, op := range slices.Concat(txn.GetSuccess(), txn.GetFailure()) {
		if string(op.GetRequestDeleteRange().GetRangeEnd()) == "\x00" || deletesFromOn(op.GetRequestTxn()) {
			return true
		}
	}
	return false
}

// perform does one request. A lease that it revokes is granted again, so that the
// sequence's end finds all of them.
func perform(p *pair, st step) error {
	// Whether a compaction overtakes a watch that catches up is a matter of time.
	if _, ok := st.request.(*pb.CompactionRequest); ok {
		if err := p.compareWatches(); err != nil {
			return err
		}
	}
	// What etcd answers from what the asked server knows: leases, transactions that
	// only read and say serializable, if only by reading nothing.
	if err := p.catchUp(st.server); err != nil {
		return err
	}
	if err := p.do(st.server, st.request); err != nil {
		return err
	}
	if r, ok := st.request.(*pb.LeaseRevokeRequest); ok && r.ID != 99 {
		return p.do(st.server, &pb.LeaseGrantRequest{ID: r.ID, TTL: 700})
	}
	return nil
}
