package transport

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/version"
)

func TestPeersTellEachOtherWhatTheyKnow(t *testing.T) {
	a := start(t, setup{id: 1})
	_, ok := a.KnownBy(2)
	require.False(t, ok)
	b := start(t, setup{id: 2, known: version.First, peers: map[uint64]string{1: "http://" + a.addr}})
	require.NoError(t, a.UpdatePeer(2, []string{"http://" + b.addr}))
	a.awaitLink(t, 2)
	b.awaitLink(t, 1)
	k, ok := a.KnownBy(2)
	require.True(t, ok)
	require.Equal(t, version.First, k)
	k, ok = b.KnownBy(1)
	require.True(t, ok)
	require.Equal(t, version.This, k)
	b.kill()
	eventually(t, func() bool { _, ok := a.KnownBy(2); return !ok }, "it isn't known any more")
}

func TestAServerThatDoesNotKnowTheClustersVersionIsRefused(t *testing.T) {
	second := func() version.Level { return 2 }
	for _, tc := range []struct {
		level func() version.Level
		known version.Known
		log   string
	}{
		{second, version.First, "server 2 can't be a member: it is too old: the cluster's version is 0.2.0, and it knows none above 0.1.0. Start it with stoa 0.2.0 or later"},
		{nil, version.Known{Oldest: 2, Newest: 3}, "server 2 can't be a member: it is too new: the cluster's version is 0.1.0, and it knows none below 0.2.0. Upgrade all members to stoa 0.2.0 first"},
	} {
		a := start(t, setup{id: 1, level: tc.level, peers: map[uint64]string{2: "http://127.0.0.1:1"}})
		b := start(t, setup{id: 2, level: tc.level, known: tc.known, peers: map[uint64]string{1: "http://" + a.addr}})
		for _, s := range []*server{a, b} {
			s.awaitLog(t, tc.log)
		}
		// Nor does a server keep a link that a peer of such a release has accepted.
		require.NoError(t, a.UpdatePeer(2, []string{"http://" + b.addr}))
		require.False(t, a.Connected(2))
		require.False(t, b.Connected(1))
	}
}

// Releases before 0.2 don't say what they know.
func TestAServerOfTheFirstReleaseIsAPeer(t *testing.T) {
	a := start(t, setup{id: 1, peers: map[uint64]string{2: "http://127.0.0.1:1"}})
	b := start(t, setup{id: 2})
	md := b.identity(1)
	md.Delete(keyOldest)
	md.Delete(keyNewest)
	id, err := parseIdentity(md)
	require.NoError(t, err)
	require.Equal(t, version.First, id.levels)
	require.NoError(t, a.check(id))
	for _, bad := range []metadata.MD{metadata.Pairs(keyOldest, "1"), metadata.Pairs(keyOldest, "x", keyNewest, "1"), metadata.Pairs(keyOldest, "1", keyNewest, "")} {
		bad = metadata.Join(md, bad)
		_, err := parseIdentity(bad)
		require.Error(t, err)
		require.Equal(t, codes.InvalidArgument, status.Code(linkWith(t, a, bad)))
	}
}

// What releases before 0.2 compare must stay as it is: they refuse another protocol.
func TestTheMetadataOfALinkDoesNotChange(t *testing.T) {
	a := start(t, setup{id: 0x1a, mark: Mark{Data: 0xd1, Starts: 3}, urls: []string{"http://one:2380"}})
	md := a.identity(2)
	require.Len(t, md[keyIncarnation], 1)
	md.Delete(keyIncarnation) // random
	require.Equal(t, metadata.MD{
		"stoa-protocol": {"3"}, "stoa-cluster": {"c1"}, "stoa-from": {"1a"}, "stoa-to": {"2"}, "stoa-partitions": {"0"},
		"stoa-data": {"d1"}, "stoa-starts": {"3"}, "stoa-urls": {"http://one:2380"},
		"stoa-oldest": {"1"}, "stoa-newest": {strconv.FormatUint(uint64(version.Newest), 16)},
	}, md)
}
