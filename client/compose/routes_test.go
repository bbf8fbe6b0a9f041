package compose

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

func table(t require.TestingT, routes ...Route) *routing {
	r, err := newRouting([]string{"eu", "us"}, routes, "")
	require.NoError(t, err)
	return r
}

func TestLongestPrefix(t *testing.T) {
	r := table(t, Route{Prefix: "", Cluster: "us"}, Route{Prefix: "/eu", Cluster: "eu", Strip: true}, Route{Prefix: "/eu/us/", Cluster: "us"})
	for key, want := range map[string]string{"/eu/a": "eu /a", "/eu": "eu ", "/europe": "eu rope", "/eu/us/x": "us /eu/us/x", "/asia": "us /asia"} {
		at, err := r.of(key)
		require.NoError(t, err)
		require.Equal(t, want, r.names[at.cluster]+" "+at.keyThere(key))
	}
	_, err := table(t, Route{Prefix: "/eu", Cluster: "eu"}).of("/asia")
	require.ErrorIs(t, err, ErrNoRoute)
	_, err = newRouting([]string{"eu"}, []Route{{Prefix: "/", Cluster: "mars"}}, "")
	require.ErrorContains(t, err, "mars")
	_, err = newRouting([]string{"eu"}, []Route{{Prefix: "/", Cluster: "eu"}, {Prefix: "/", Cluster: "eu"}}, "")
	require.ErrorContains(t, err, "two routes")
}

// TestSegmentsDrawn cuts ranges and checks that every key near the cuts is in
// the segment of its own route, and in the translated range if it is in the
// original one.
func TestSegmentsDrawn(t *testing.T) {
	alphabet := rapid.StringOfN(rapid.RuneFrom([]rune("ab\xff")), 0, 3, 3)
	rapid.Check(t, func(t *rapid.T) {
		var routes []Route
		for _, p := range rapid.SliceOfNDistinct(alphabet, 1, 4, func(s string) string { return s }).Draw(t, "prefixes") {
			routes = append(routes, Route{Prefix: p, Cluster: rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "cluster"), Strip: rapid.Bool().Draw(t, "strip")})
		}
		r := table(t, routes...)
		from, to := alphabet.Draw(t, "from"), alphabet.Draw(t, "to")
		if to != "" && to <= from {
			return
		}
		all, _ := r.segments(from, to)
		for range 20 {
			key := alphabet.Draw(t, "key")
			if key == "" {
				continue
			}
			inRange := key >= from && (to == "" || key < to)
			at := r.find(key)
			found := 0
			for i := range all {
				s := &all[i]
				if key >= s.from && (s.to == "" || key < s.to) {
					found++
					require.True(t, inRange)
					require.True(t, s.joins(at), "%q", key)
				}
				there, end := s.there()
				if at != nil && s.joins(at) && at.keyThere(key) != "" {
					k := at.keyThere(key)
					has := k >= string(there) && (string(end) == "\x00" || k < string(end))
					require.Equal(t, key >= s.from && (s.to == "" || key < s.to), has, "%q is %q there, in [%q, %q)", key, k, there, end)
				}
			}
			if inRange && at != nil {
				require.Equal(t, 1, found, "%q of %v", key, all)
			}
		}
	})
}

func TestPlace(t *testing.T) {
	r := table(t, Route{Prefix: "/eu/", Cluster: "eu"}, Route{Prefix: "/us", Cluster: "us", Strip: true})
	m, err := engine.Message(clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.Value("/us/a"), "=", "1")},
		[]clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("/us", clientv3.WithPrefix())}, nil)}, nil))
	require.NoError(t, err)
	at, err := r.place(m)
	require.NoError(t, err)
	require.Equal(t, "us", r.names[at.cluster])
	sent := at.message.(*pb.TxnRequest)
	require.Equal(t, "/a", string(sent.Compare[0].Key))
	inner := sent.Success[0].GetRequestTxn().Success[0].GetRequestTxn()
	require.Equal(t, `["\x00", "/stoa/") ["/stoa0", …)`, spellOps(inner.Success), "all keys there but those of protocols")
	require.Equal(t, "/us/a", string(m.(*pb.TxnRequest).Compare[0].Key), "the caller's message is left alone")

	found := func(key string) *pb.ResponseOp {
		return responseOf(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte(key)}}})
	}
	txn := func(of ...*pb.ResponseOp) *pb.TxnResponse { return &pb.TxnResponse{Succeeded: true, Responses: of} }
	within := func(of *pb.TxnResponse) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: of}}
	}
	answer := at.back(txn(within(txn(within(txn(found("/a"), found("/x"))))))).(*pb.TxnResponse)
	kvs := answer.Responses[0].GetResponseTxn().Responses[0].GetResponseRange().Kvs
	require.Len(t, kvs, 2)
	require.Equal(t, "/us/a /us/x", string(kvs[0].Key)+" "+string(kvs[1].Key))

	for _, op := range []clientv3.Op{
		clientv3.OpDelete("/", clientv3.WithPrefix()),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("/eu/a", ""), clientv3.OpPut("/us/a", "")}, nil),
	} {
		m, err := engine.Message(op)
		require.NoError(t, err)
		_, err = r.place(m)
		require.ErrorIs(t, err, ErrSpans)
		require.ErrorContains(t, err, `"/eu/" (cluster eu)`)
	}
}

func spellOps(ops []*pb.RequestOp) string {
	var all []string
	for _, op := range ops {
		r := inside(op).(interface {
			GetKey() []byte
			GetRangeEnd() []byte
		})
		all = append(all, spell(bounds(r.GetKey(), r.GetRangeEnd())))
	}
	return strings.Join(all, " ")
}

// TestMergeDrawn merges the answers of pieces, and compares with one answer to all keys that aren't reserved.
func TestMergeDrawn(t *testing.T) {
	r := table(t, Route{Prefix: "/eu/", Cluster: "eu"}, Route{Prefix: "/us", Cluster: "us", Strip: true})
	rapid.Check(t, func(t *rapid.T) {
		var all, shown []*mvccpb.KeyValue
		for i := range rapid.IntRange(0, 12).Draw(t, "keys") {
			prefix := rapid.SampledFrom([]string{"/eu/", "/us/", "/us/stoa/", "/us/x"}).Draw(t, "prefix")
			all = append(all, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%s%02d", prefix, i), Value: []byte(rapid.StringN(1, 3, 3).Draw(t, "value")), Version: rapid.Int64Range(1, 3).Draw(t, "version")})
			if prefix != "/us/stoa/" {
				shown = append(shown, all[i])
			}
		}
		q := &pb.RangeRequest{
			Key: []byte("/"), RangeEnd: []byte("0"), Limit: rapid.Int64Range(0, 6).Draw(t, "limit"),
			SortOrder:  pb.RangeRequest_SortOrder(rapid.IntRange(0, 2).Draw(t, "order")),
			SortTarget: rapid.SampledFrom([]pb.RangeRequest_SortTarget{pb.RangeRequest_KEY, pb.RangeRequest_VERSION, pb.RangeRequest_VALUE}).Draw(t, "target"),
		}
		s, err := r.span(q)
		require.NoError(t, err)
		var answers []*pb.RangeResponse
		for i := range s.pieces {
			var kvs []*mvccpb.KeyValue
			for _, kv := range all {
				if at := r.find(string(kv.Key)); at == s.pieces[i].route {
					there := proto.Clone(kv).(*mvccpb.KeyValue)
					there.Key = []byte(at.keyThere(string(kv.Key)))
					kvs = append(kvs, there)
				}
			}
			r := s.request(i)
			a := answerOf(r.message, kvs)
			if r.back != nil {
				a = r.back(a)
			}
			answers = append(answers, a.(*pb.RangeResponse))
		}
		want := answerTo(s, shown)
		got := s.merge(answers)
		require.Equal(t, want.Count, got.Count)
		require.Equal(t, want.More, got.More)
		require.Len(t, got.Kvs, len(want.Kvs))
		for i := range want.Kvs {
			require.Equal(t, string(want.Kvs[i].Key), string(got.Kvs[i].Key))
		}
	})
}

// answerOf is the answer of a cluster with these keys, to a range or to a transaction with some.
func answerOf(m proto.Message, all []*mvccpb.KeyValue) proto.Message {
	if m, ok := m.(*pb.TxnRequest); ok {
		a := &pb.TxnResponse{Succeeded: true}
		for _, op := range m.Success {
			a.Responses = append(a.Responses, responseOf(answerOf(inside(op), all)))
		}
		return a
	}
	q := m.(*pb.RangeRequest)
	from, to := bounds(q.Key, q.RangeEnd)
	return answerTo(&span{asked: q}, slices.DeleteFunc(slices.Clone(all), func(kv *mvccpb.KeyValue) bool {
		return string(kv.Key) < from || to != "" && string(kv.Key) >= to
	}))
}

// answerTo is etcd's answer. Equals are in the order of their keys.
func answerTo(s *span, kvs []*mvccpb.KeyValue) *pb.RangeResponse {
	kvs = append([]*mvccpb.KeyValue(nil), kvs...)
	(&span{asked: &pb.RangeRequest{}}).sort(kvs)
	s.sort(kvs)
	a := &pb.RangeResponse{Kvs: kvs, Count: int64(len(kvs))}
	if limit := int(s.asked.Limit); limit > 0 && len(kvs) > limit {
		a.Kvs, a.More = kvs[:limit], true
	}
	return a
}

// A range without keys has none in its cluster either, though its route is stripped: neither if it ends before it begins,
// nor if there is only the route's prefix in it, which is no key there.
func TestRangesWithoutKeys(t *testing.T) {
	r := table(t, aroundReserved...)
	for _, c := range []struct{ key, end string }{
		{"/us/a", "/"}, {"/us/a", "/b"}, {"/us/a", "/us"}, {"/us/a", "/us/"}, {"/us/a", "/us/A"}, {"/us/a", "/us/a"}, {"/us/a", "\x01"},
		{"/us/", "/us/"}, {"/us/", "/us/\x00"}, {"/us/", "/us"}, {"/us/\x00", "/us/\x00"}, {"/us/\x00", "/us/"},
	} {
		key, end := []byte(c.key), []byte(c.end)
		for _, m := range []proto.Message{&pb.RangeRequest{Key: key, RangeEnd: end}, &pb.DeleteRangeRequest{Key: key, RangeEnd: end}} {
			p, err := r.place(&pb.TxnRequest{Success: []*pb.RequestOp{opOf(proto.Clone(m))}})
			require.NoError(t, err)
			inner := inside(p.message.(*pb.TxnRequest).Success[0])
			p, err = r.place(m)
			require.NoError(t, err)
			require.Truef(t, proto.Equal(inner, p.message), "%v", p.message)
			from, to := bounds(p.message.(ranged).GetKey(), p.message.(ranged).GetRangeEnd())
			require.NotEmpty(t, to, "%v: all keys", m)
			require.LessOrEqual(t, to, from, "%v", m)
		}
	}
	p, err := r.place(&pb.RangeRequest{Key: []byte("/us/\x00"), RangeEnd: []byte("/us/\x00\x00")})
	require.NoError(t, err)
	require.Equal(t, `["\x00", "\x00\x00")`, spell(bounds(p.message.(ranged).GetKey(), p.message.(ranged).GetRangeEnd())))
}

type ranged interface {
	GetKey() []byte
	GetRangeEnd() []byte
}
