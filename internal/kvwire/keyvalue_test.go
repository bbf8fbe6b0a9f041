package kvwire

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func TestAppendIsMarshal(t *testing.T) {
	number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
	rapid.Check(t, func(t *rapid.T) {
		kv := &mvccpb.KeyValue{
			Key: rapid.SliceOf(rapid.Byte()).Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"),
			CreateRevision: number.Draw(t, "create"), ModRevision: number.Draw(t, "mod"),
			Version: number.Draw(t, "version"), Lease: number.Draw(t, "lease"),
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(kv)
		require.NoError(t, err)
		got := Append([]byte("before"), kv)
		require.Equal(t, "before"+string(want), string(got))
		require.Len(t, want, Size(kv))
	})
}
