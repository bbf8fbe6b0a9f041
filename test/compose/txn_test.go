package compose

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/stoa-kv/stoa/client/compose"
)

var txnTime = flag.Duration("txn", 15*time.Second, "time for which transactions run under kills")

const (
	accounts = 8 // in each cluster
	opening  = 100
	tellers  = 4 // processes
	auditors = 4
	// tellerPause is the mean time between two transfers of one client: an audit, which needs all
	// keys unlocked, gets its turn.
	tellerPause = 50 * time.Millisecond
)

// balance is the value of an account, with what the transaction that has written it has done: so
// the histories of the clusters show all transactions.
type balance struct {
	Amount int
	Txn    string
	Reads  map[string]string // key: the transaction whose value was read
	Writes []string
}

func account(cluster, n int) string { return fmt.Sprintf("%sacc/%d", prefix(cluster), n) }

func (all clusters) bank() compose.Config {
	var members [][]string
	for _, c := range all {
		members = append(members, urls(c.voters))
	}
	return bankOf(members)
}

func bankOf(members [][]string) compose.Config {
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}, Timeout: 2 * time.Second}
	for i, endpoints := range members {
		cfg.Clusters[name(i)] = compose.Cluster{Endpoints: endpoints}
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: prefix(i), Cluster: name(i), Transactions: true})
	}
	return cfg
}

// Processes transfer money between accounts in three clusters, of both kinds; they and the servers
// are killed with SIGKILL all the time. All transactions are atomic and serializable, no money is
// lost, and a minute after the last kill no lock is left.
func TestTransactions(t *testing.T) {
	all := startEach(t, "stoa", "etcd", "stoa")
	c, err := compose.New(all.bank())
	require.NoError(t, err)
	defer c.Close()
	for i := range all {
		for n := range accounts {
			_, err := c.Put(t.Context(), account(i, n), encodeBalance(balance{Amount: opening, Txn: "opening"}))
			require.NoError(t, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), *txnTime)
	defer cancel()
	var work sync.WaitGroup
	var members [][]string
	for _, c := range all {
		members = append(members, urls(c.voters))
	}
	text, err := json.Marshal(members)
	require.NoError(t, err)
	killed := make([]int, tellers)
	for i := range tellers {
		work.Go(func() { killed[i] = teller(ctx, t, i, string(text)) })
	}
	work.Go(func() { all.killServers(ctx, t) })
	var audits atomic.Int64
	for range auditors {
		by := c.Fork()
		work.Go(func() {
			for sleep(ctx, 20*time.Millisecond) {
				if sum, err := audit(ctx, by, len(all)); err == nil {
					assert.Equal(t, opening*accounts*len(all), sum, "in between")
					audits.Add(1)
				}
			}
		})
	}
	work.Wait()
	begun := time.Now()
	require.EventuallyWithT(t, func(t2 *assert.CollectT) { assert.Empty(t2, all.left(t)) }, time.Minute, 500*time.Millisecond)
	t.Logf("all locks are gone after %v", time.Since(begun).Round(time.Millisecond))
	sum, err := audit(t.Context(), c, len(all))
	require.NoError(t, err)
	require.Equal(t, opening*accounts*len(all), sum)
	n := checkSerial(t, all.written(t))
	t.Logf("%d transactions, %d audits, clients killed: %v", n, audits.Load(), killed)
	require.Greater(t, n, 20)
	require.Positive(t, audits.Load())
}

// audit reads all accounts in one transaction.
func audit(ctx context.Context, c *compose.Client, clusters int) (sum int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var gets []clientv3.Op
	for i := range clusters {
		for n := range accounts {
			gets = append(gets, clientv3.OpGet(account(i, n)))
		}
	}
	a, err := c.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return 0, err
	}
	for _, r := range a.Responses {
		sum += decodeBalance(string(r.GetResponseRange().Kvs[0].Value)).Amount
	}
	return sum, nil
}

// teller runs a process that transfers money, kills it, and runs another one.
func teller(ctx context.Context, t *testing.T, id int, members string) (killed int) {
	for n := 0; ctx.Err() == nil; n++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTeller$")
		cmd.Env = append(os.Environ(), "STOA_TELLER="+fmt.Sprintf("%d.%d", id, n), "STOA_BANK="+members)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return killed
		}
		sleep(ctx, time.Duration(1500+rand.IntN(4000))*time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		killed++
	}
	return killed
}

// TestTeller is the process of a teller; on its own it does nothing.
func TestTeller(t *testing.T) {
	me := os.Getenv("STOA_TELLER")
	if me == "" {
		t.Skip("the process of TestTransactions")
	}
	var members [][]string
	require.NoError(t, json.Unmarshal([]byte(os.Getenv("STOA_BANK")), &members))
	c, err := compose.New(bankOf(members))
	require.NoError(t, err)
	var work sync.WaitGroup
	for g := range 2 {
		work.Go(func() {
			by := c.Fork()
			for n := 0; ; n++ {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				_ = transfer(ctx, by, fmt.Sprintf("%s.%d.%d", me, g, n), len(members))
				cancel()
				sleep(t.Context(), rand.N(2*tellerPause))
			}
		})
	}
	work.Wait()
}

// transfer moves an amount from one account to another one, after looking at a third.
func transfer(ctx context.Context, c *compose.Client, txn string, clusters int) error {
	var keys []string
	for len(keys) < 3 {
		if k := account(rand.IntN(clusters), rand.IntN(accounts)); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	_, err := c.STM(ctx, func(s concurrency.STM) error {
		reads, at := map[string]string{}, make([]balance, len(keys))
		for i, k := range keys {
			at[i] = decodeBalance(s.Get(k))
			reads[k] = at[i].Txn
		}
		amount := 1 + at[2].Amount%7
		for i, sign := range []int{-1, 1} {
			s.Put(keys[i], encodeBalance(balance{Amount: at[i].Amount + sign*amount, Txn: txn, Reads: reads, Writes: keys[:2]}))
		}
		return nil
	})
	return err
}

func encodeBalance(b balance) string {
	text, _ := json.Marshal(b)
	return string(text)
}

func decodeBalance(s string) (b balance) {
	_ = json.Unmarshal([]byte(s), &b)
	return b
}

// killServers kills one server at a time and starts it again.
func (all clusters) killServers(ctx context.Context, t *testing.T) {
	for sleep(ctx, time.Duration(2000+rand.IntN(6000))*time.Millisecond) { // a lease lives longer behind each
		c := all[rand.IntN(len(all))]
		s := c.Servers[0]
		if err := s.Kill(); err != nil {
			t.Error(err)
			return
		}
		sleep(ctx, time.Duration(rand.IntN(500))*time.Millisecond)
		if err := c.Restart(context.WithoutCancel(ctx), s); err != nil {
			t.Error(err)
			return
		}
	}
}

// left are the locks and records that are there.
func (all clusters) left(t *testing.T) (keys []string) {
	for _, c := range all {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		a, err := dial(t, c.voters...).Get(ctx, "/stoa/txn/", clientv3.WithPrefix())
		cancel()
		if err != nil {
			return []string{err.Error()}
		}
		for _, kv := range a.Kvs {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

// written are the values of each account, in their order.
func (all clusters) written(t *testing.T) map[string][]balance {
	written := map[string][]balance{}
	for _, c := range all {
		cli := dial(t, c.voters...)
		ctx, cancel := context.WithCancel(t.Context())
		last, err := cli.Put(ctx, "/end", "")
		require.NoError(t, err)
		for r := range cli.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
			require.NoError(t, r.Err())
			for _, ev := range r.Events {
				if strings.HasPrefix(string(ev.Kv.Key), "/c") {
					written[string(ev.Kv.Key)] = append(written[string(ev.Kv.Key)], decodeBalance(string(ev.Kv.Value)))
				}
			}
			if len(r.Events) > 0 && r.Events[len(r.Events)-1].Kv.ModRevision >= last.Header.Revision {
				break
			}
		}
		cancel()
	}
	return written
}

// checkSerial checks that each transaction has written all its keys once, and that there is an
// order of all in which each has read what the one before has written: the graph of what depends
// on what (Adya: Weak Consistency, §4) has no cycle.
func checkSerial(t *testing.T, written map[string][]balance) (transactions int) {
	t.Helper()
	times, next, all := map[string]int{}, map[string]string{}, map[string]balance{}
	for key, values := range written {
		for i, b := range values {
			times[key+" "+b.Txn]++
			require.Equal(t, 1, times[key+" "+b.Txn], "%s has written %s twice", b.Txn, key)
			if i > 0 {
				next[key+" "+values[i-1].Txn] = b.Txn
			}
			if b.Txn != "opening" {
				all[b.Txn] = b
			}
		}
	}
	behind := map[string][]string{} // by transaction, those that come after it
	for txn, b := range all {
		for _, key := range b.Writes {
			require.Equal(t, 1, times[key+" "+txn], "%s has not written %s", txn, key)
			if n := next[key+" "+txn]; n != "" {
				behind[txn] = append(behind[txn], n)
			}
		}
		for key, from := range b.Reads {
			require.Equal(t, 1, times[key+" "+from], "%s has read %s of %s, which nobody has written", txn, key, from)
			behind[from] = append(behind[from], txn)
			if n := next[key+" "+from]; n != "" && n != txn {
				behind[txn] = append(behind[txn], n)
			}
		}
	}
	require.Empty(t, cycle(behind))
	return len(all)
}

// cycle is one in a graph, empty if there is none.
func cycle(edges map[string][]string) []string {
	state := map[string]int{} // 1: on the path, 2: done
	var path []string
	var visit func(string) bool
	visit = func(n string) bool {
		state[n], path = 1, append(path, n)
		for _, m := range edges[n] {
			if state[m] == 1 {
				path = append(path, m)
				return true
			}
			if state[m] == 0 && visit(m) {
				return true
			}
		}
		state[n], path = 2, path[:len(path)-1]
		return false
	}
	for n := range edges {
		if state[n] == 0 && visit(n) {
			return path
		}
	}
	return nil
}
