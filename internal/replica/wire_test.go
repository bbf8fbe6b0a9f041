package replica

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The bodies of calls between servers as the first release sends them: servers of two releases
// call each other. What a later level sends in another form gets a line of its own.
func TestTheBodiesOfCallsDoNotChange(t *testing.T) {
	all := placement.Of(0) | placement.Of(1) | placement.Of(2)
	golden := func(want string, got []byte) []byte {
		t.Helper()
		require.Equal(t, want, hex.EncodeToString(got))
		b, err := hex.DecodeString(want)
		require.NoError(t, err)
		return b
	}
	put := command.Command{Kind: command.Put, Body: []byte("body")}
	w := &Write{Command: put, Parts: placement.Of(1) | placement.Of(2), System: true, Session: true, Home: 2}
	back, err := decodeWrite(golden("01030602626f6479", encodeWrite(w)), all)
	require.NoError(t, err)
	require.Equal(t, w, back)

	out := Outcome{Group: 1, Index: 300, Result: apply.Result{Rev: 9, Response: &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 9}}}}
	b, err := encodeOutcome(out)
	require.NoError(t, err)
	o, err := decodeOutcome(command.Put, golden("01ac02090a021809", b))
	require.NoError(t, err)
	require.True(t, proto.Equal(out.Response, o.Response))
	require.Equal(t, []any{1, uint64(300), int64(9)}, []any{o.Group, o.Index, o.Rev})

	parts, terms, err := decodeQuestion(golden("0307ac02", encodeQuestion(placement.Of(0)|placement.Of(1), []uint64{7, 300})), all)
	require.NoError(t, err)
	require.Equal(t, placement.Of(0)|placement.Of(1), parts)
	require.Equal(t, []uint64{7, 300}, terms)

	points := []Closed{{Group: 0, Index: 5, Revision: 9}, {Group: 1, Index: 300, Revision: 1 << 40}}
	read, err := decodePoints(golden("00050901ac02808080808020", encodePoints(points)), parts)
	require.NoError(t, err)
	require.Equal(t, points, read)
}
