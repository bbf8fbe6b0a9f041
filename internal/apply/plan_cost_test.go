package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
)

// A transaction of many keys under many extensions that its client may not use: each
// extension is asked once, not for each key.
func TestATransactionAsksEachExtensionOnce(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		for i := range 300 {
			r, _ := w.ask(who{client: "owner"}, sourcePut(fmt.Sprintf("e%d", i), `return { operations = { { op = "txn", prefix = "/x/" } }, txn = function() end }`))
			require.NoError(t, r.Err)
		}
		req := &pb.TxnRequest{}
		for i := range 381 {
			req.Success = append(req.Success, operationOf(&pb.PutRequest{Key: fmt.Appendf(nil, "/x/%d", i)}))
		}
		began := used(t)
		call, asked := w.first.concern(command.Txn, req, who{client: "bob"}.caller, true)
		took := used(t) - began
		require.Empty(t, call.Name)
		require.Len(t, asked, 300)
		r, _ := w.ask(who{client: "bob"}, req)
		require.NoError(t, r.Err)
		all := used(t) - began
		t.Logf("planned in %v, with its execution on two machines %v", took, all)
		require.Less(t, all, mayTake)
	})
}

// A delete of many keys far below what extensions subscribe to: to find out whom each key
// concerns takes as long as there are patterns on its way, not as it has slashes.
func TestADeleteOfDeepKeysIsCheap(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		deep := strings.Repeat("/", 990)
		req := &pb.TxnRequest{}
		for i := range 20_000 {
			req.Success = append(req.Success, operationOf(&pb.PutRequest{Key: fmt.Appendf(nil, "/x%s%05d", deep, i)}))
			if len(req.Success) == 100 {
				r, _ := w.ask(who{}, req)
				require.NoError(t, r.Err)
				req = &pb.TxnRequest{}
			}
		}
		w.register("far", `return { scope = { "/x/y/" }, events = { { event = "deleted", prefix = "/x/y/" } }, event = function() end }`)
		began := used(t)
		w.must("del /x/ /x0")
		took := used(t) - began
		t.Logf("%v on two machines", took)
		require.Less(t, took, 5*mayTake)
	})
}
