package compose

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
)

// What isn't a command is refused before it is in the queue.
func TestCommandsRefuse(t *testing.T) {
	s := &Commands{c: &Client{core: &core{routes: lockable(t)}}, at: []int{0}}
	one, err := s.op(clientv3.OpPut("/asia/a", "1"))
	require.NoError(t, err)
	require.Equal(t, mirror.Op{Key: []byte("/asia/a"), Value: []byte("1")}, one.Op)
	for _, tc := range []struct {
		op   clientv3.Op
		want error
	}{
		{clientv3.OpPut("/nowhere/a", ""), ErrNoRoute},
		{clientv3.OpPut("/eu/a", ""), ErrTransactions},
		{clientv3.OpDelete("/us/a"), ErrTransactions},
		{clientv3.OpGet("/asia/a"), ErrCommand},
		{clientv3.OpDelete("/asia/", clientv3.WithPrefix()), ErrCommand},
		{clientv3.OpPut("/asia/a", "", clientv3.WithLease(7)), ErrCommand},
	} {
		_, err := s.op(tc.op)
		require.ErrorIs(t, err, tc.want)
	}
}
