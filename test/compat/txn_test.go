package compat

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestTxnCompares(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		l, err := e.cli.Grant(e.ctx, 600)
		require.NoError(t, err)
		k := e.key("a", 0)
		e.put(k, "m")
		_, err = e.cli.Put(e.ctx, k, "m", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		kv := e.get(k).Kvs[0]

		type target struct {
			what string
			of   func(op string, off int) clientv3.Cmp
		}
		for _, tc := range []target{
			{"version", func(op string, off int) clientv3.Cmp {
				return clientv3.Compare(clientv3.Version(k), op, kv.Version+int64(off))
			}},
			{"create", func(op string, off int) clientv3.Cmp {
				return clientv3.Compare(clientv3.CreateRevision(k), op, kv.CreateRevision+int64(off))
			}},
			{"mod", func(op string, off int) clientv3.Cmp {
				return clientv3.Compare(clientv3.ModRevision(k), op, kv.ModRevision+int64(off))
			}},
			{"value", func(op string, off int) clientv3.Cmp {
				return clientv3.Compare(clientv3.Value(k), op, string(rune('m'+off)))
			}},
			{"lease", func(op string, off int) clientv3.Cmp {
				return clientv3.Compare(clientv3.LeaseValue(k), op, l.ID+clientv3.LeaseID(off))
			}},
		} {
			for off := -1; off <= 1; off++ {
				for op, want := range map[string]bool{"=": off == 0, "!=": off != 0, ">": off < 0, "<": off > 0} {
					resp, err := e.cli.Txn(e.ctx).If(tc.of(op, off)).Then(clientv3.OpGet(k)).Commit()
					require.NoError(t, err)
					require.Equal(t, want, resp.Succeeded, "%s %s, off by %d", tc.what, op, off)
				}
			}
		}
	})
}

func TestTxnComparesOfMissingKeysAndRanges(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		holds := func(cmps ...clientv3.Cmp) bool {
			resp, err := e.cli.Txn(e.ctx).If(cmps...).Commit()
			require.NoError(t, err)
			return resp.Succeeded
		}
		no := e.key("none", 0)
		require.True(t, holds())
		require.True(t, holds(clientv3.Compare(clientv3.Version(no), "=", 0)))
		require.True(t, holds(clientv3.Compare(clientv3.CreateRevision(no), "=", 0)))
		require.True(t, holds(clientv3.Compare(clientv3.ModRevision(no), "<", 1)))
		require.False(t, holds(clientv3.Compare(clientv3.Value(no), "=", "")), "a missing key has no value, not even an empty one")
		require.True(t, holds(clientv3.Compare(clientv3.LeaseValue(no), "=", 0)))

		keys, revs := e.fill(1)
		whole := clientv3.GetPrefixRangeEnd(e.root)
		require.True(t, holds(clientv3.Compare(clientv3.Version(e.root), "=", 1).WithRange(whole)), "every key of all partitions")
		require.True(t, holds(clientv3.Compare(clientv3.ModRevision(e.root), "<", revs[len(revs)-1]+1).WithRange(whole)))
		require.False(t, holds(clientv3.Compare(clientv3.ModRevision(e.root), "<", revs[len(revs)-1]).WithRange(whole)))
		e.put(keys[3], "again")
		require.False(t, holds(clientv3.Compare(clientv3.Version(e.root), "=", 1).WithRange(whole)))
		none := clientv3.Compare(clientv3.Version(e.root+"none/"), "=", 0).WithRange(e.root + "none0")
		require.True(t, holds(none), "no keys compare like one key that is not there")
		none = clientv3.Compare(clientv3.Version(e.root+"none/"), ">", 0).WithRange(e.root + "none0")
		require.False(t, holds(none))
		require.False(t, holds(clientv3.Compare(clientv3.Value(keys[0]), "=", "v"+keys[0]),
			clientv3.Compare(clientv3.Value(keys[1]), "=", "other")), "all compares must hold")
	})
}

func TestTxnIsOneRevisionOverAllPartitions(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		var ops []clientv3.Op
		for _, d := range dirs {
			ops = append(ops, clientv3.OpPut(e.key(d, 0), "v"))
		}
		before := e.put(e.key("a", 1), "x")
		resp, err := e.cli.Txn(e.ctx).Then(ops...).Commit()
		require.NoError(t, err)
		require.Equal(t, before+1, resp.Header.Revision)
		start, end := e.all()
		got := e.get(start, end, clientv3.WithMinModRev(resp.Header.Revision))
		require.Len(t, got.Kvs, len(dirs))
		for _, kv := range got.Kvs {
			require.Equal(t, resp.Header.Revision, kv.ModRevision)
		}
		require.EqualValues(t, 1, e.get(start, end, clientv3.WithRev(before)).Count, "nothing of it before")
	})
}

func TestTxnSeesItsOwnWrites(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(1)
		whole := clientv3.WithRange(clientv3.GetPrefixRangeEnd(e.root))
		fresh := e.key("b", 7)
		resp, err := e.cli.Txn(e.ctx).Then(
			clientv3.OpGet(e.root, whole, clientv3.WithCountOnly()),
			clientv3.OpPut(fresh, "1"),
			clientv3.OpGet(e.root, whole, clientv3.WithCountOnly()),
			clientv3.OpDelete(e.root+"c/", clientv3.WithPrefix(), clientv3.WithPrevKV()),
			clientv3.OpGet(e.root, whole, clientv3.WithCountOnly()),
			clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.Value(fresh), "=", "1")},
				[]clientv3.Op{clientv3.OpPut(e.key("d", 7), "2", clientv3.WithPrevKV())},
				[]clientv3.Op{clientv3.OpPut(e.key("e", 7), "3")},
			),
			clientv3.OpGet(e.root, whole, clientv3.WithCountOnly()),
		).Commit()
		require.NoError(t, err)
		n := int64(len(keys))
		for i, want := range map[int]int64{0: n, 2: n + 1, 4: n, 6: n + 1} {
			require.Equal(t, want, resp.Responses[i].GetResponseRange().Count, "operation %d", i)
		}
		require.EqualValues(t, 1, resp.Responses[3].GetResponseDeleteRange().Deleted)
		// Compares of a nested transaction are evaluated before anything is written.
		require.False(t, resp.Responses[5].GetResponseTxn().Succeeded)
		require.Equal(t, resp.Header.Revision, e.get(e.key("e", 7)).Kvs[0].ModRevision)
		require.Empty(t, e.get(e.key("d", 7)).Kvs)
	})
}

func TestTxnDeletesAndPutsAgain(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		k := e.key("a", 0)
		e.put(k, "old")
		_, err := e.cli.Txn(e.ctx).Then(clientv3.OpDelete(k), clientv3.OpPut(k, "new")).Commit()
		wantError(t, rpctypes.ErrGRPCDuplicateKey, err)
		_, err = e.cli.Txn(e.ctx).Then(clientv3.OpPut(k, "1"), clientv3.OpPut(k, "2")).Commit()
		wantError(t, rpctypes.ErrGRPCDuplicateKey, err)
		_, err = e.cli.Txn(e.ctx).Then(clientv3.OpPut(k, "1"), clientv3.OpDelete(e.root, clientv3.WithPrefix())).Commit()
		wantError(t, rpctypes.ErrGRPCDuplicateKey, err)
		_, err = e.cli.Txn(e.ctx).Then(clientv3.OpPut(k, "1"),
			clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpPut(k, "2")})).Commit()
		wantError(t, rpctypes.ErrGRPCDuplicateKey, err)

		_, err = e.cli.Txn(e.ctx).Then(clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.Version(k), ">", 0)},
			[]clientv3.Op{clientv3.OpPut(k, "then")}, []clientv3.Op{clientv3.OpPut(k, "else")})).Commit()
		require.NoError(t, err, "the two branches exclude each other")
		require.Equal(t, "then", string(e.get(k).Kvs[0].Value))
		_, err = e.cli.Txn(e.ctx).Then(clientv3.OpDelete(k), clientv3.OpDelete(e.root, clientv3.WithPrefix())).Commit()
		require.NoError(t, err)
	})
}

func TestTxnThatFailsWritesNothing(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		a, b := e.key("a", 0), e.key("b", 0)
		rev := e.put(e.key("c", 0), "x")
		for name, bad := range map[string]struct {
			op   clientv3.Op
			want error
		}{
			"ignore value": {clientv3.OpPut(b, "", clientv3.WithIgnoreValue()), rpctypes.ErrGRPCKeyNotFound},
			"ignore lease": {clientv3.OpPut(b, "v", clientv3.WithIgnoreLease()), rpctypes.ErrGRPCKeyNotFound},
			"no lease":     {clientv3.OpPut(b, "v", clientv3.WithLease(0x7eed)), rpctypes.ErrGRPCLeaseNotFound},
			"future":       {clientv3.OpGet(b, clientv3.WithRev(1<<40)), rpctypes.ErrGRPCFutureRev},
		} {
			_, err := e.cli.Txn(e.ctx).Then(clientv3.OpPut(a, "v"), bad.op).Commit()
			wantError(t, bad.want, err)
			require.Empty(t, e.get(a).Kvs, name)
		}
		require.GreaterOrEqual(t, e.put(e.key("c", 0), "y"), rev+1)
	})
}

func TestTxnBadRequests(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		var many []clientv3.Op
		for i := range 129 {
			many = append(many, clientv3.OpPut(e.key(dirs[i%8], i), "v"))
		}
		_, err := e.cli.Txn(e.ctx).Then(many...).Commit()
		wantError(t, rpctypes.ErrGRPCTooManyOps, err)
		_, err = e.cli.Txn(e.ctx).Then(many[:128]...).Commit()
		require.NoError(t, err)

		_, err = e.kv.Txn(e.ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{}}})
		wantError(t, rpctypes.ErrGRPCKeyNotFound, err)
		_, err = e.kv.Txn(e.ctx, &pb.TxnRequest{Compare: []*pb.Compare{{}}})
		wantError(t, rpctypes.ErrGRPCEmptyKey, err)
		_, err = e.kv.Txn(e.ctx, &pb.TxnRequest{Failure: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}}})
		wantError(t, rpctypes.ErrGRPCEmptyKey, err)
		_, err = e.kv.Txn(e.ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k"), SortOrder: 5}}}}})
		wantError(t, rpctypes.ErrGRPCInvalidSortOption, err)
		resp, err := e.kv.Txn(e.ctx, &pb.TxnRequest{})
		require.NoError(t, err)
		require.True(t, resp.Succeeded)
		require.NotZero(t, resp.Header.Revision)
	})
}

// Money moved between accounts of different partitions: the sum never changes,
// for readers of all partitions at once on any server.
func TestTxnsOverPartitionsAreAtomic(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		const each, moves = 100, 40
		for _, d := range dirs {
			e.put(e.key(d, 0), fmt.Sprint(each))
		}
		start, end := e.all()
		var wg sync.WaitGroup
		errs := make(chan error, 16)
		for w := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range moves {
					if err := e.move(e.key(dirs[(w+i)%8], 0), e.key(dirs[(w*3+i+1)%8], 0)); err != nil {
						errs <- err
					}
				}
			}()
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for reads := 0; ; reads++ {
			cli := e.client(e.Servers[reads%len(e.Servers)].ClientURL)
			got, err := cli.Get(e.ctx, start, end)
			require.NoError(t, err)
			cli.Close()
			sum := 0
			for _, kv := range got.Kvs {
				var n int
				fmt.Sscan(string(kv.Value), &n)
				sum += n
			}
			require.Equal(t, each*len(dirs), sum, "at revision %d", got.Header.Revision)
			select {
			case err := <-errs:
				t.Fatal(err)
			case <-done:
				return
			default:
			}
		}
	})
}

// move transfers one between two accounts, unless they have changed meanwhile.
func (e *env) move(from, to string) error {
	if from == to {
		return nil
	}
	a, err := e.cli.Get(e.ctx, from)
	if err != nil {
		return err
	}
	b, err := e.cli.Get(e.ctx, to)
	if err != nil {
		return err
	}
	var x, y int
	fmt.Sscan(string(a.Kvs[0].Value), &x)
	fmt.Sscan(string(b.Kvs[0].Value), &y)
	_, err = e.cli.Txn(e.ctx).
		If(clientv3.Compare(clientv3.ModRevision(from), "=", a.Kvs[0].ModRevision),
			clientv3.Compare(clientv3.ModRevision(to), "=", b.Kvs[0].ModRevision)).
		Then(clientv3.OpPut(from, fmt.Sprint(x-1)), clientv3.OpPut(to, fmt.Sprint(y+1))).Commit()
	return err
}
