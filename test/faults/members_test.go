//go:build faults

package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/process"
)

// A cluster grows from one server to five and shrinks to one again, always without its
// leader, under the load of the other tests, with a server that is stopped during each change, often
// the leader, and one that is killed after it.
func TestMembers(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	for _, parts := range []int{1, 4} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) { growAndShrink(t, process.Spec{Partitions: parts}, true) })
	}
}

var roundsFlag = flag.Int("rounds", 1, "how often TestMemberGaps grows and shrinks each cluster")

// roster has the servers of a cluster whose members change.
type roster struct {
	t *testing.T
	c *process.Cluster

	began time.Time // the last attempt to change the members

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func (r *roster) list() []*grpc.ClientConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*grpc.ClientConn
	for _, s := range r.c.Servers {
		if c := r.conns[s.Name]; c != nil {
			all = append(all, c)
		}
	}
	return all
}

func (r *roster) serve(s *process.Server) {
	conn, err := dial(s.ClientURL)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[s.Name] = conn
}

// gap is the longest time without an acknowledged write in one step: from the request that
// changes the members, for those before it are refused for seconds, until all members have been
// connected for long enough, to a while after its answer, since etcd removes a leader before
// another one is elected. quiet is the longest in half a second before.
type gap struct {
	step string
	time.Duration
	quiet time.Duration
}

const (
	quietBefore = 500 * time.Millisecond
	watchAfter  = 1500 * time.Millisecond
)

// TestMemberGaps prints the gaps of each step beside etcd's for the same steps, without kills: the
// medians of -rounds, their range, and the median of the quiet ones.
func TestMemberGaps(t *testing.T) {
	gaps := map[string][][]gap{}
	columns := []string{"stoa P=1", "stoa P=4", "etcd"}
	for range *roundsFlag {
		for _, column := range columns {
			t.Run(column, func(t *testing.T) {
				kind, parts, _ := strings.Cut(column, " P=")
				bin, err := process.Choose(kind)
				require.NoError(t, err)
				n, _ := strconv.Atoi(parts)
				gaps[column] = append(gaps[column], growAndShrink(t, process.Spec{Binary: bin, Partitions: n}, false))
			})
		}
	}
	columns = slices.DeleteFunc(columns, func(column string) bool { return gaps[column] == nil })
	if t.Failed() || len(columns) == 0 {
		return
	}
	fmt.Print(gapTable(columns, gaps))
}

func gapTable(columns []string, gaps map[string][][]gap) string {
	var table strings.Builder
	fmt.Fprintf(&table, "| the longest time without an acknowledged write, ms | %s |\n| --- |%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
	for i, g := range gaps[columns[0]][0] {
		fmt.Fprintf(&table, "| %s |", g.step)
		for _, column := range columns {
			var in, before []int64
			for _, round := range gaps[column] {
				in, before = append(in, round[i].Milliseconds()), append(before, round[i].quiet.Milliseconds())
			}
			slices.Sort(in)
			slices.Sort(before)
			fmt.Fprintf(&table, " %d (%d-%d; quiet %d) |", in[len(in)/2], in[0], in[len(in)-1], before[len(before)/2])
		}
		table.WriteByte('\n')
	}
	return table.String()
}

// growAndShrink returns the gap of each step. With kills, a server is stopped during each, and one killed after it.
func growAndShrink(t *testing.T, spec process.Spec, kills bool) (gaps []gap) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 98))
	spec.Nodes = 1
	c := process.StartT(t, spec)
	r := &roster{t: t, c: c, conns: map[string]*grpc.ClientConn{}}
	r.serve(c.Servers[0])

	rec := &recorder{start: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ids atomic.Int64
	var work sync.WaitGroup
	for i := range *clients {
		cl := &client{rnd: rand.New(rand.NewPCG(seed, uint64(i))), ids: func() int64 { return ids.Add(1) }, conns: r.list}
		work.Go(func() { drive(ctx, i, cl, rec) })
	}
	quiet := func() time.Duration {
		if kills {
			return 0
		}
		began := rec.now()
		time.Sleep(quietBefore)
		return rec.gap(began)
	}
	said := func(quiet time.Duration, step string) {
		if !kills {
			time.Sleep(watchAfter)
		}
		g := gap{step, rec.gap(int64(r.began.Sub(rec.start))), quiet}
		gaps = append(gaps, g)
		t.Logf("%6.2fs %s; the longest time without a write: %v (%v)", time.Since(rec.start).Seconds(), step, g.Round(time.Millisecond), g.quiet.Round(time.Millisecond))
	}
	for n := 2; n <= 5; n++ {
		before := quiet()
		stopped := r.stop(kills, rnd)
		s := r.grow(fmt.Sprintf("m%d", n))
		stopped()
		said(before, fmt.Sprintf("%d servers become %d", n-1, n))
		t.Logf("%s has joined", s.Name)
		if kills && n > 2 {
			r.kill(rnd)
		}
	}
	for len(c.Servers) > 1 {
		before := quiet()
		stopped := r.stop(kills, rnd)
		gone := r.shrink()
		stopped()
		said(before, fmt.Sprintf("%d servers become %d, without the leader", len(c.Servers)+1, len(c.Servers)))
		t.Logf("%s, the leader, has left", gone)
		if kills && len(c.Servers) > 2 {
			r.kill(rnd)
		}
	}
	cancel()
	work.Wait()
	if !kills && !spec.Binary.Stoa {
		return gaps // etcd is measured, and not judged
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	judge(t, c, cli, rec, newLiveWatch(t, cli))
	return gaps
}

// gap is the longest time without an acknowledged write since a moment.
func (r *recorder) gap(since int64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	times := []int64{since, r.now()}
	for _, op := range r.ops {
		if k := op.Input.(request).kind; op.Return > since && k != opGet && k != opGetAll && !op.Output.(answer).unknown {
			times = append(times, op.Return)
		}
	}
	slices.Sort(times)
	longest := int64(0)
	for i := range times[1:] {
		longest = max(longest, times[i+1]-times[i])
	}
	return time.Duration(longest)
}

// ask repeats a request to any of the servers until it succeeds. A change that has taken
// effect without an answer is done, then.
func (r *roster) ask(what string, ask func(context.Context, *clientv3.Client) error) {
	r.t.Helper()
	var last error
	require.Eventually(r.t, func() bool {
		cli, err := clientv3.New(clientv3.Config{Endpoints: r.c.Endpoints(), Logger: zap.NewNop(), DialTimeout: 2 * time.Second})
		require.NoError(r.t, err)
		defer cli.Close()
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		defer cancel()
		r.began = time.Now()
		last = ask(ctx, cli)
		return last == nil
	}, 3*time.Minute, 200*time.Millisecond, "%s: %v", what, &last)
}

func (r *roster) grow(name string) *process.Server {
	s := r.join(name)
	r.serve(s)
	return s
}

// join adds a member and waits until it serves.
func (r *roster) join(name string) *process.Server {
	r.t.Helper()
	return r.joinAs(name, func(ctx context.Context, cli *clientv3.Client, url string) error {
		_, err := cli.MemberAdd(ctx, []string{url})
		return err
	})
}

func (r *roster) joinAs(name string, add func(ctx context.Context, cli *clientv3.Client, url string) error) *process.Server {
	r.t.Helper()
	r.mu.Lock()
	s, err := r.c.Joining(name, process.Place{Host: "127.0.0.1"})
	r.c.Servers = r.c.Servers[:len(r.c.Servers)-1] // not one to ask yet
	r.mu.Unlock()
	require.NoError(r.t, err)
	r.ask("adding "+name, func(ctx context.Context, cli *clientv3.Client) error {
		err := add(ctx, cli, s.PeerURL)
		if err != nil && strings.Contains(err.Error(), "Peer URLs already exists") {
			return nil
		}
		return err
	})
	require.NoError(r.t, s.Start())
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	require.NoError(r.t, s.WaitReady(ctx))
	r.mu.Lock()
	r.c.Servers = append(r.c.Servers, s)
	r.mu.Unlock()
	return s
}

// shrink removes the leader, which ends by itself.
func (r *roster) shrink() (gone string) {
	var id uint64
	r.ask("looking for the leader", func(ctx context.Context, cli *clientv3.Client) error {
		st, err := cli.Status(ctx, r.c.Servers[0].ClientURL)
		if err != nil {
			return err
		}
		list, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if id = m.ID; id == st.Leader && m.Name != "" {
				gone = m.Name
				return nil
			}
		}
		return fmt.Errorf("there is no leader")
	})
	r.remove(gone, id)
	return gone
}

// remove removes a member, whose server ends by itself.
func (r *roster) remove(gone string, id uint64) {
	r.t.Helper()
	at := slices.IndexFunc(r.c.Servers, func(s *process.Server) bool { return s.Name == gone })
	s := r.c.Servers[at]
	r.askToRemove(gone, id)
	r.mu.Lock()
	r.c.Servers = slices.Delete(slices.Clone(r.c.Servers), at, at+1)
	r.mu.Unlock()
	code, err := s.Wait(30 * time.Second)
	require.NoError(r.t, err, "%s doesn't end", gone)
	require.Zero(r.t, code)
}

func (r *roster) askToRemove(name string, id uint64) {
	r.t.Helper()
	r.ask("removing "+name, func(ctx context.Context, cli *clientv3.Client) error {
		_, err := cli.MemberRemove(ctx, id)
		if err != nil && strings.Contains(err.Error(), "member not found") {
			return nil
		}
		return err
	})
}

// stop stops a server with SIGSTOP for a while, beside what its caller does, the leader in one of two cases. The
// function that it returns waits for the end of that.
func (r *roster) stop(wanted bool, rnd *rand.Rand) (wait func()) {
	if !wanted {
		return func() {}
	}
	s := r.c.Servers[rnd.IntN(len(r.c.Servers))]
	if i := leaderOf(r.t.Context(), r.c); i >= 0 && rnd.IntN(2) == 0 {
		s = r.c.Servers[i]
	}
	begins, lasts := time.Duration(rnd.IntN(300))*time.Millisecond, time.Duration(100+rnd.IntN(1400))*time.Millisecond
	var stopped sync.WaitGroup
	stopped.Go(func() {
		time.Sleep(begins)
		if s.Pause() == nil { // else it has been removed, and has ended
			r.t.Logf("%s was stopped for %v", s.Name, lasts)
			time.Sleep(lasts)
			_ = s.Resume()
		}
	})
	r.t.Cleanup(stopped.Wait)
	return stopped.Wait
}

// kill kills a server and starts it again.
func (r *roster) kill(rnd *rand.Rand) {
	s := r.c.Servers[rnd.IntN(len(r.c.Servers))]
	r.t.Logf("%s is killed", s.Name)
	require.NoError(r.t, s.Kill())
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	require.NoError(r.t, r.c.Restart(ctx, s))
}
