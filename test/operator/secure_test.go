package operator

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// A cluster whose peers authenticate each other grows from one member to three. A server whose
// certificate is of another authority stays outside, and does no harm.
func TestMembersThatJoinOverTLS(t *testing.T) {
	requireStoa(t)
	t.Parallel()
	a, foreign := process.NewAuthority(t), process.NewAuthority(t)
	c := process.StartT(t, process.Spec{Partitions: 2, PeerTLS: true, Args: a.Flags("peer-")})
	first := c.Servers[0]
	put(t, first, "before", 5)

	second := added(t, c, first, "s2")
	stranger := second.Without("--peer-cert-file", "--peer-key-file", "--peer-trusted-ca-file").With(foreign.Flags("peer-")...)
	require.NoError(t, stranger.Start())
	awaitLog(t, first, 0, "rejected connection on peer endpoint")
	require.NoError(t, stranger.Kill())
	require.NotContains(t, first.LogTail(1<<20), "link from the peer is up")
	require.NoError(t, second.Start())
	ready(t, second)

	third := added(t, c, second, "s3")
	require.NoError(t, third.Start())
	ready(t, third)
	put(t, third, "after", 5)
	for _, s := range c.Servers {
		requireKeys(t, s, "before", 5)
		requireKeys(t, s, "after", 5)
	}
	require.Len(t, slices.DeleteFunc(members(t, third), func(m *pb.Member) bool { return m.Name == "" }), 3)
}
