package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
)

// What is pushed is named after its revision. While a push is under way another one takes what is left of a quota, and has the
// first revision that its client couldn't have been shown. The second puts a key of its own, and doesn't fit.
func TestAPushBesideAnotherDoesNotFit(t *testing.T) {
	var queue state
	for key, value := range map[string]string{"": "", "/owner": alice} {
		queue.put(&mvccpb.KeyValue{Key: []byte(manager + "queue" + key), Value: []byte(value)})
	}
	evaluated := func(keys state, rev int64) state {
		e := &evaluation{keys: keys, began: keys, rev: rev, who: alice}
		e.call(&pb.PutRequest{Key: []byte("/x/push"), Value: []byte("v1")})
		return e.keys
	}
	full := evaluated(queue, 8)
	require.Equal(t, int64(1), full.size("/x/").Keys)

	c := &cluster{ledger: &ledger{quotas: []quotas{{list: []auth.Quota{{Prefix: "/x/", Limits: auth.Limits{Keys: 1}}}}}}}
	p := &past{c: c, revisions: []*revision{{rev: 7}, {rev: 8, latest: time.Second}}, states: []state{{}, queue, full}}
	second := &op{
		who: alice, req: &pb.PutRequest{Key: []byte("/x/push"), Value: []byte("v2")}, state: refused, err: fault.QuotaExceeded,
		floor: 7, ret: 2 * time.Second,
	}
	require.True(t, p.mayNotFit(second))

	second.ret = time.Second / 2 // before the other
	require.False(t, p.mayNotFit(second))
}
