package compose

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

var three = []string{"asia", "eu", "us"}

func TestFlattening(t *testing.T) {
	r, err := newRouting(three, []Route{
		{Prefix: "", Cluster: "us"},
		{Prefix: "/all/", Cluster: "us", Mirrors: []string{"eu", "asia"}},
		{Prefix: "/all/west/", Cluster: "eu", Mirrors: []string{"us"}}, // fringe
		{Prefix: "/all/west/here/", Cluster: "eu"},
		{Prefix: "/asia/", Cluster: "asia", Mirrors: []string{"eu"}},
	}, "eu")
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 0, 2}, r.targets(), "a view for each home that is mirrored in eu")
	for _, c := range []struct{ key, end, at string }{
		{"/all/a", "", "us in eu"},
		{"/all/", "/all/w", "us in eu"},
		{"/asia/a", "", "asia in eu"},
		{"/all/west/a", "", "eu"},
		{"/all/west/here/a", "", "eu"},
		{"/other", "", "us"},
		{"/a", "/all/b", "us"}, // two routes of one home
	} {
		m := &pb.RangeRequest{Key: []byte(c.key), RangeEnd: []byte(c.end)}
		p, err := r.place(m)
		require.NoError(t, err, c.key)
		at := three[r.targets()[p.cluster]]
		if p.cluster >= len(three) {
			at += " in eu"
		}
		require.Equal(t, c.at, at, "%q to %q", c.key, c.end)
	}
	all := r.find("/all/a")
	require.Equal(t, "stamped '/all/' but '/all/west/' but '/all/west/here/'", all.said)
	_, err = r.place(&pb.RangeRequest{Key: []byte("/all/"), RangeEnd: []byte("/all0")})
	require.ErrorIs(t, err, ErrSpans, "a fringe has another home")
}

// A read goes to the home of its keys if a mirror's own revisions would answer it.
func TestReadsAtHome(t *testing.T) {
	r, err := newRouting(three, []Route{{Prefix: "/", Cluster: "us", Mirrors: []string{"eu"}}}, "eu")
	require.NoError(t, err)
	for _, c := range []struct {
		op   clientv3.Op
		view bool
	}{
		{clientv3.OpGet("/a"), true},
		{clientv3.OpGet("/a", clientv3.WithPrefix(), clientv3.WithLimit(3), clientv3.WithKeysOnly()), true},
		{clientv3.OpGet("/a", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)), true},
		{clientv3.OpGet("/a", clientv3.WithRev(4)), false},
		{clientv3.OpGet("/a", clientv3.WithMaxModRev(4)), false},
		{clientv3.OpGet("/", clientv3.WithLastRev()...), false},
		{clientv3.OpGet("/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend)), false},
		{clientv3.OpGet("/", clientv3.WithPrefix()), false}, // the mirror's own keys are in it
		{clientv3.OpPut("/a", ""), false},
		{clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("/a")}, nil), false},
	} {
		m, err := engine.Message(c.op)
		require.NoError(t, err)
		p, err := r.place(m)
		require.NoError(t, err)
		require.Equal(t, c.view, p.cluster == len(three), "%v", m)
		require.Equal(t, c.view, p.mirrored != nil)
	}
}

func TestMirrorsRefused(t *testing.T) {
	for _, c := range []struct {
		text   string
		routes []Route
	}{
		{`"/all/", in which it lies, is mirrored and not there`, []Route{ // P2
			{Prefix: "/all/", Cluster: "us", Mirrors: []string{"eu"}}, {Prefix: "/all/asia/", Cluster: "asia"}}},
		{"in which it lies", []Route{
			{Prefix: "/all/", Cluster: "us", Mirrors: []string{"eu"}}, {Prefix: "/all/x/", Cluster: "us", Mirrors: []string{"asia"}}}},
		{"can't be stripped", []Route{{Prefix: "/a/", Cluster: "us", Mirrors: []string{"eu"}, Strip: true}}},
		{"is in none of the clusters", []Route{{Prefix: "/a/", Cluster: "us", Mirrors: []string{"mars"}}}},
		{"is the home of", []Route{{Prefix: "/a/", Cluster: "us", Mirrors: []string{"us"}}}},
		{"named twice", []Route{{Prefix: "/a/", Cluster: "us", Mirrors: []string{"eu", "eu"}}}},
		{"keep their own keys", []Route{{Prefix: "/stoa/x", Cluster: "us", Mirrors: []string{"eu"}}}},
		{`the route of "/eu/" strips`, []Route{{Prefix: "/a/", Cluster: "us", Mirrors: []string{"eu"}}, {Prefix: "/eu/", Cluster: "eu", Strip: true}}},
	} {
		_, err := newRouting(three, c.routes, "")
		require.ErrorContains(t, err, c.text)
	}
	_, err := newRouting(three, []Route{{Prefix: "/", Cluster: "us"}}, "mars")
	require.ErrorContains(t, err, "mars")
}
