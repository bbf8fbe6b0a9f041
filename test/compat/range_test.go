package compat

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestRangeBounds(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(2)
		slices.Sort(keys)
		start, end := e.all()
		require.Equal(t, keys, keysOf(e.get(start, end)), "over all partitions, in key order")
		require.Equal(t, keys, keysOf(e.get(e.root, clientv3.WithPrefix())))
		require.Equal(t, keys[3:7], keysOf(e.get(keys[3], clientv3.WithRange(keys[7]))))
		require.Equal(t, keys[2:3], keysOf(e.get(keys[2], clientv3.WithRange(keys[2]+"\x00"))))
		require.Equal(t, keys[2:4], keysOf(e.get(e.root+"b/", clientv3.WithPrefix())), "one directory")
		require.Equal(t, keys[5:], keysOf(e.get(keys[5], clientv3.WithFromKey()))[:len(keys)-5])
		require.Empty(t, e.get(keys[7], clientv3.WithRange(keys[3])).Kvs, "end before key")
		require.Empty(t, e.get(keys[3], clientv3.WithRange(keys[3])).Kvs, "end equal to key")

		everything, err := e.kv.Range(e.ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true})
		require.NoError(t, err)
		require.GreaterOrEqual(t, everything.Count, int64(len(keys)))
	})
}

func TestRangeLimits(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(2)
		slices.Sort(keys)
		start, end := e.all()
		n := int64(len(keys))
		for _, tc := range []struct {
			limit int64
			want  int64
			more  bool
		}{{0, n, false}, {1, 1, true}, {5, 5, true}, {n - 1, n - 1, true}, {n, n, false}, {n + 1, n, false}} {
			got := e.get(start, end, clientv3.WithLimit(tc.limit))
			require.Equal(t, keys[:tc.want], keysOf(got), "limit %d", tc.limit)
			require.Equal(t, tc.more, got.More, "limit %d", tc.limit)
			require.Equal(t, n, got.Count, "the count is of all that match, limit %d", tc.limit)
		}
		count := e.get(start, end, clientv3.WithCountOnly())
		require.Equal(t, n, count.Count)
		require.Empty(t, count.Kvs)
		for _, kv := range e.get(start, end, clientv3.WithKeysOnly()).Kvs {
			require.Empty(t, kv.Value)
			require.NotZero(t, kv.ModRevision)
		}

		// Pages, as Kubernetes reads them: at the first page's revision, from the last key on.
		page := e.get(start, end, clientv3.WithLimit(3))
		rev, got := page.Header.Revision, keysOf(page)
		e.put(e.key("zz", 0), "comes too late")
		for page.More {
			page = e.get(got[len(got)-1]+"\x00", end, clientv3.WithLimit(3), clientv3.WithRev(rev))
			got = append(got, keysOf(page)...)
		}
		require.Equal(t, keys, got)
	})
}

func TestRangeSorts(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		e.fill(2)
		// Give versions, values and revisions orders of their own.
		for i, d := range []string{"c", "a", "f", "a", "h"} {
			e.put(e.key(d, i%2), fmt.Sprintf("%d", 9-i))
		}
		start, end := e.all()
		base := e.get(start, end).Kvs
		less := map[clientv3.SortTarget]func(a, b *mvccpb.KeyValue) int{
			clientv3.SortByKey:            func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) },
			clientv3.SortByVersion:        func(a, b *mvccpb.KeyValue) int { return int(a.Version - b.Version) },
			clientv3.SortByCreateRevision: func(a, b *mvccpb.KeyValue) int { return int(a.CreateRevision - b.CreateRevision) },
			clientv3.SortByModRevision:    func(a, b *mvccpb.KeyValue) int { return int(a.ModRevision - b.ModRevision) },
			clientv3.SortByValue:          func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Value, b.Value) },
		}
		for target, cmp := range less {
			for _, order := range []clientv3.SortOrder{clientv3.SortNone, clientv3.SortAscend, clientv3.SortDescend} {
				for _, limit := range []int64{0, 3} {
					got := e.get(start, end, clientv3.WithSort(target, order), clientv3.WithLimit(limit))
					name := fmt.Sprintf("target %v, order %v, limit %d", target, order, limit)
					require.EqualValues(t, len(base), got.Count, name)
					require.Equal(t, limit != 0, got.More, name)
					require.True(t, slices.IsSortedFunc(got.Kvs, func(a, b *mvccpb.KeyValue) int {
						if order == clientv3.SortDescend {
							a, b = b, a
						}
						return cmp(a, b)
					}), name)
				}
			}
		}
		last := e.get(e.root, clientv3.WithLastKey()...)
		require.Equal(t, []string{e.key("h", 1)}, keysOf(last))
		newest := e.get(e.root, append(clientv3.WithLastRev(), clientv3.WithPrefix())...)
		require.Equal(t, e.key("h", 0), string(newest.Kvs[0].Key))
	})
}

func TestRangeRevisionFilters(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, revs := e.fill(2)
		again := e.put(keys[0], "again")
		start, end := e.all()

		got := e.get(start, end, clientv3.WithMinModRev(revs[4]), clientv3.WithMaxModRev(revs[6]))
		require.ElementsMatch(t, keys[4:7], keysOf(got))
		got = e.get(start, end, clientv3.WithMinModRev(again))
		require.Equal(t, keys[:1], keysOf(got))
		got = e.get(start, end, clientv3.WithMaxCreateRev(revs[2]))
		require.ElementsMatch(t, keys[:3], keysOf(got))
		got = e.get(start, end, clientv3.WithMinCreateRev(revs[14]), clientv3.WithLimit(1))
		require.Len(t, got.Kvs, 1)
		require.True(t, got.More)
	})
}

func TestRangeOfThePast(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, revs := e.fill(1)
		for i, k := range keys {
			e.put(k, fmt.Sprintf("new %d", i))
		}
		_, err := e.cli.Delete(e.ctx, keys[1])
		require.NoError(t, err)
		start, end := e.all()

		for i, rev := range revs {
			got := e.get(start, end, clientv3.WithRev(rev))
			require.Equal(t, keys[:i+1], keysOf(got), "at the revision of write %d", i)
			require.EqualValues(t, i+1, got.Count)
			for _, kv := range got.Kvs {
				require.Equal(t, "v"+string(kv.Key), string(kv.Value))
			}
			require.GreaterOrEqual(t, got.Header.Revision, rev, "the header is of now")
		}
		require.Len(t, e.get(start, end).Kvs, len(keys)-1)
		require.Len(t, e.get(keys[1], clientv3.WithRev(revs[1])).Kvs, 1)
	})
}

func TestSerializableReads(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(2)
		start, end := e.all()
		for i := range e.Servers {
			cli := e.client(e.Servers[i].ClientURL)
			// A strict read first, so that this server has caught up.
			_, err := cli.Get(e.ctx, start, end)
			require.NoError(t, err)
			got, err := cli.Get(e.ctx, start, end, clientv3.WithSerializable())
			require.NoError(t, err)
			require.Len(t, got.Kvs, len(keys))
		}
	})
}

func TestEveryServerAnswersStrictly(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		// Written through one, read at once through each other.
		var clis []*clientv3.Client
		for _, s := range e.Servers {
			clis = append(clis, e.client(s.ClientURL))
		}
		last := int64(0)
		for i := range 30 {
			d := dirs[i%len(dirs)]
			put, err := clis[i%len(clis)].Put(e.ctx, e.key(d, 0), fmt.Sprint(i))
			require.NoError(t, err)
			require.Greater(t, put.Header.Revision, last)
			last = put.Header.Revision
			for j := range clis {
				got, err := clis[(i+j+1)%len(clis)].Get(e.ctx, e.key(d, 0))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(i), string(got.Kvs[0].Value))
				require.Equal(t, put.Header.Revision, got.Kvs[0].ModRevision)
				// A key of another partition: the header never goes back in
				// real time.
				got, err = clis[j].Get(e.ctx, e.key(dirs[(i+3)%len(dirs)], 0))
				require.NoError(t, err)
				require.GreaterOrEqual(t, got.Header.Revision, last)
			}
		}
	})
}

func TestRangeStream(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(2)
		for _, d := range dirs {
			e.put(e.key(d, 9), strings.Repeat(d, 400<<10)) // more than one chunk
		}
		req := &pb.RangeRequest{Key: []byte(e.root), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(e.root))}
		whole, err := e.kv.Range(e.ctx, req)
		require.NoError(t, err)
		merged, chunks := e.stream(req)
		require.Greater(t, chunks, 1)
		require.Equal(t, whole.Header.Revision, merged.Header.Revision)
		require.Equal(t, whole.Count, merged.Count)
		require.Equal(t, whole.More, merged.More)
		require.Len(t, merged.Kvs, len(keys)+len(dirs))
		for i := range whole.Kvs {
			require.True(t, proto.Equal(whole.Kvs[i], merged.Kvs[i]))
		}

		req.Limit = 5
		merged, _ = e.stream(req)
		require.Len(t, merged.Kvs, 5)
		require.True(t, merged.More)
		require.EqualValues(t, len(keys)+len(dirs), merged.Count)

		for _, bad := range []*pb.RangeRequest{
			{Key: []byte("k"), SortOrder: pb.RangeRequest_DESCEND},
			{Key: []byte("k"), MinModRevision: 3},
		} {
			s, err := e.kv.RangeStream(e.ctx, bad)
			require.NoError(t, err)
			_, err = s.Recv()
			require.Equal(t, codes.Unimplemented, status.Code(err))
		}
	})
}

// stream reads a RangeStream to its end and puts the chunks together.
func (e *env) stream(req *pb.RangeRequest) (merged *pb.RangeResponse, chunks int) {
	e.t.Helper()
	s, err := e.kv.RangeStream(e.ctx, req)
	require.NoError(e.t, err)
	merged = &pb.RangeResponse{}
	for {
		resp, err := s.Recv()
		if err == io.EOF {
			return merged, chunks
		}
		require.NoError(e.t, err)
		chunks++
		proto.Merge(merged, resp.RangeResponse)
	}
}
