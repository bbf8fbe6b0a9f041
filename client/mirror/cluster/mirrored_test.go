package cluster

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/client/mirror"
)

// A key of the target, with the stamp, is the key of the source.
func TestStamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Int64()
		want := &mvccpb.KeyValue{
			Key: []byte("k"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"), Lease: number.Draw(t, "lease"),
			CreateRevision: number.Draw(t, "create"), ModRevision: number.Draw(t, "mod"), Version: number.Draw(t, "version"),
		}
		there := &mvccpb.KeyValue{Key: want.Key, Value: Stamped(want), CreateRevision: 1, ModRevision: 2, Version: 3}
		require.NoError(t, Unstamp(there))
		require.True(t, proto.Equal(want, there), "%v and %v", want, there)
	})
	require.Error(t, Unstamp(&mvccpb.KeyValue{Value: make([]byte, stampSize-1)}))
}

func TestMirroredKeys(t *testing.T) {
	m := Mirrored{Prefix: "/a/", Except: []string{"/a/c/", "/a/b/"}}
	require.Equal(t, "/stoa/mirror/mark//a/", m.MarkKey())
	require.Equal(t, m.String(), Mirrored{Prefix: "/a/", Except: []string{"/a/b/", "/a/c/", "/a/b/"}}.String())
	require.NotEqual(t, m.CandidatesKey(), Mirrored{Prefix: "/a"}.CandidatesKey()+"/")
	require.Equal(t, Span{From: "/a/", End: "/a0", Except: m.Except}, m.Span())
	require.Equal(t, []string{Reserved}, Mirrored{Prefix: "/"}.Span().Except)
	require.Equal(t, Span{From: "\x00", End: "\x00", Except: []string{Reserved}}, Mirrored{}.Span())
}

// someKeys is a cluster with a few keys.
type someKeys struct {
	clientv3.KV
	keys []string
}

func (s someKeys) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r := &clientv3.GetResponse{}
	for _, k := range s.keys {
		r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: []byte(k), Value: []byte("v"), ModRevision: 7})
	}
	return r, nil
}

// Keys that belong to other routes are neither read nor followed; the place moves over them.
func TestExceptedKeys(t *testing.T) {
	span := Prefix("/a/", "/a/b/")
	p := newPager(someKeys{keys: []string{"/a/a", "/a/b/x", "/a/c"}}, span)
	p.stamp = true
	kvs, _, err := p.page(t.Context(), nil, 0)
	require.NoError(t, err)
	require.Len(t, kvs, 2)
	require.Equal(t, "/a/c", string(kvs[1].Key))
	require.Len(t, kvs[1].Value, len("v")+stampSize)

	w := newFakeWatcher()
	f := newFeed(t.Context(), w, span, true, 5)
	t.Cleanup(f.Close)
	event := func(rev int64, key string, kind mvccpb.Event_EventType) clientv3.WatchResponse {
		return clientv3.WatchResponse{Events: []*clientv3.Event{{Type: kind, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: rev}}}}
	}
	w.responses <- event(6, "/a/a", mvccpb.PUT)
	w.responses <- event(7, "/a/a", mvccpb.DELETE)
	w.responses <- event(8, "/a/b/x", mvccpb.PUT)
	w.responses <- clientv3.WatchResponse{}
	changes, through, err := f.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 8, through)
	require.Len(t, changes, 2)
	require.Len(t, changes[0].Value, stampSize)
	require.Equal(t, mirror.Change{Revision: 7, Key: []byte("/a/a"), Deleted: true}, changes[1])
}
