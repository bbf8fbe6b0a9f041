package node

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
)

// FuzzLeaseCalls decodes what servers ask each other of leases: whoever reaches an open peer
// port can send it.
func FuzzLeaseCalls(f *testing.F) {
	r, err := proto.Marshal(&pb.LeaseTimeToLiveRequest{ID: 5, Keys: true})
	require.NoError(f, err)
	f.Add(protowire.AppendVarint(protowire.AppendTag(r, fieldUser, protowire.VarintType), 300))
	f.Add(append(binary.AppendUvarint(nil, 1<<40), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if apply.ReadRenewer(b).Session {
			require.Greater(t, len(b), 1)
		}
		m := new(pb.LeaseTimeToLiveRequest)
		if proto.Unmarshal(b, m) == nil {
			_ = userOf(m)
		}
	})
}
