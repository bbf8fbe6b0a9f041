package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// FuzzIntroduce answers introductions, which servers exchange before they know each other. A
// refused one leaves no trace.
func FuzzIntroduce(f *testing.F) {
	a, b := startWith(f, three[0], 5), startWith(f, three[1], 5)
	q, err := proto.Marshal(b.own(a.self.Member))
	require.NoError(f, err)
	f.Add(q)
	f.Add(q[:len(q)/2])
	f.Fuzz(func(t *testing.T, wire []byte) {
		q := new(peerpb.Introduction)
		if proto.Unmarshal(wire, q) != nil {
			return
		}
		before := len(a.rec.Peers)
		answer, err := a.Introduce(q)
		if err == nil && answer.GetRefusal() != peerpb.Refusal_NONE {
			require.Len(t, a.rec.Peers, before)
		}
		require.LessOrEqual(t, len(a.rec.Peers), len(three))
	})
}
