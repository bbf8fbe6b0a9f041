//go:build faults

package faults

import (
	"context"
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
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/process"
)

// ledgerSource is a counter and a queue that keep a record of every call under its
// identifier, so that what was lost and what was done twice is seen exactly.
const ledgerSource = `
local function once(id)
  if not create("/f/ids/" .. id, "") then put("/f/twice/" .. id, "") end
end
return {
  scope = { "/f/" },
  operations = { { op = "put", key = "/f/inc" }, { op = "put", key = "/f/push" }, { op = "put", key = "/f/pop" } },
  put = function(r)
    once(r.value)
    if r.key == "/f/inc" then
      local n = tonumber(get("/f/ctr") or "0") + 1
      put("/f/ctr", n)
      put("/f/ids/" .. r.value, n)
      return n
    end
    if r.key == "/f/push" then
      put("/f/q/" .. string.format("%019d", revision()), r.value)
      return "pushed"
    end
    for i, head in ipairs(range("/f/q/", 1)) do
      delete(head.key)
      put("/f/popped/" .. r.value, head.value)
      return head.value
    end
    return "empty"
  end,
}`

// counted is what came of one call.
type counted struct {
	verb, id string
	answer   string // "" if none came
}

// ledgerLoad is many clients that call, one call after the other.
type ledgerLoad struct {
	t     *testing.T
	conns []*grpc.ClientConn
	ids   atomic.Int64
	mu    sync.Mutex
	calls []counted
}

func register(t *testing.T, conn *grpc.ClientConn, key, value string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := pb.NewKVClient(conn).Put(contextFor(t, opTimeout), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		if s, _ := status.FromError(err); s.Code() == codes.InvalidArgument || s.Code() == codes.FailedPrecondition {
			t.Fatal(err)
		}
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
}

func (l *ledgerLoad) run(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		call := counted{verb: []string{"inc", "inc", "push", "pop"}[rnd.IntN(4)], id: strconv.FormatInt(l.ids.Add(1), 10)}
		wait, cancel := context.WithTimeout(context.Background(), opTimeout)
		resp, err := pb.NewKVClient(l.conns[rnd.IntN(len(l.conns))]).Put(wait, &pb.PutRequest{Key: []byte("/f/" + call.verb), Value: []byte(call.id)})
		cancel()
		switch {
		case err != nil:
			if c := status.Code(err); c == codes.InvalidArgument || c == codes.FailedPrecondition || c == codes.ResourceExhausted {
				l.t.Errorf("%s %s: %v", call.verb, call.id, err)
			}
			time.Sleep(20 * time.Millisecond)
		case resp.PrevKv == nil:
			l.t.Errorf("%s %s was not handled by the extension", call.verb, call.id)
		default:
			call.answer = string(resp.PrevKv.Value)
		}
		l.mu.Lock()
		l.calls = append(l.calls, call)
		l.mu.Unlock()
	}
}

// TestKillsUnderExtensions: no increment is lost and none is done twice; each
// element of the queue is handed out at most once, and none is lost.
func TestKillsUnderExtensions(t *testing.T) {
	requireStoa(t)
	for _, parts := range []int{1, 3} {
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) {
			runLedger(t, parts, []string{"kill one", "kill the leader", "kill the leader", "kill two", "kill all", "kill one twice"})
		})
	}
}

func runLedger(t *testing.T, parts int, names []string) {
	seed := seedOf(t)
	c := start(t, process.Spec{Binary: binaryFor(t, names), Nodes: 3, Partitions: parts})
	l := &ledgerLoad{t: t, conns: connect(t, c.Endpoints())}
	register(t, l.conns[0], "/em/ledger", ledgerSource)
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	var work sync.WaitGroup
	for i := range *clients * 2 {
		work.Go(func() { l.run(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	count := disturb(t, ctx, newNemesis(t, c, seed, time.Now()), names)
	work.Wait()
	t.Logf("%d faults", count)
	l.judge(c)
}

func (l *ledgerLoad) judge(c *process.Cluster) {
	t := l.t
	register(t, l.conns[0], "/last", "write") // writes have resumed
	everything, err := pb.NewKVClient(l.conns[0]).Range(t.Context(), &pb.RangeRequest{Key: []byte("/f/"), RangeEnd: []byte("/f0")})
	require.NoError(t, err)
	byKey := map[string]*mvccpb.KeyValue{}
	elements := map[string]string{} // where each element of the queue is
	put := func(element, where string) {
		require.Empty(t, elements[element], "element %s is %s as well", element, where)
		elements[element] = where
	}
	numbers := map[string]string{} // the increments, by what they counted to
	for _, kv := range everything.Kvs {
		key, value := string(kv.Key), string(kv.Value)
		byKey[key] = kv
		switch {
		case strings.HasPrefix(key, "/f/twice/"):
			t.Errorf("call %s was carried out twice", key)
		case strings.HasPrefix(key, "/f/q/"):
			put(value, "in the queue")
		case strings.HasPrefix(key, "/f/popped/"):
			put(value, "handed out to "+key)
		case strings.HasPrefix(key, "/f/ids/") && value != "":
			require.Empty(t, numbers[value], "two increments counted to %s", value)
			numbers[value] = key
		}
	}
	final, err := strconv.Atoi(string(byKey["/f/ctr"].GetValue()))
	require.NoError(t, err)
	require.Len(t, numbers, final, "the counter is at %d", final)
	acknowledged, unknown, pushed, popped := 0, 0, 0, 0
	for _, call := range l.calls {
		done := byKey["/f/ids/"+call.id]
		if call.answer != "" {
			require.NotNil(t, done, "%s %s was acknowledged and is lost", call.verb, call.id)
		}
		switch {
		case call.verb == "inc" && call.answer == "":
			unknown++
		case call.verb == "inc":
			acknowledged++
			require.Equal(t, call.answer, string(done.Value), "increment %s", call.id)
		case call.verb == "push" && call.answer != "":
			pushed++
			require.NotEmpty(t, elements[call.id], "element %s is lost", call.id)
		case call.verb == "pop" && call.answer != "" && call.answer != "empty":
			popped++
			require.Equal(t, "handed out to /f/popped/"+call.id, elements[call.answer])
		}
	}
	t.Logf("counter: %d acknowledged <= %d <= %d + %d without an answer; queue: %d pushed, %d popped", acknowledged, final, acknowledged, unknown, pushed, popped)
	require.LessOrEqual(t, acknowledged, final)
	require.LessOrEqual(t, final, acknowledged+unknown)
	require.Greater(t, acknowledged, 50, "hardly anything was done")
	require.Greater(t, popped, 20, "hardly anything was done")
	ctx := contextFor(t, time.Minute)
	requireSameHash(t, ctx, c, everything.Header.Revision)
}

// hostileSources are handlers that exceed every limit, and are stopped.
var hostileSources = []struct{ name, body string }{
	{"steps", `while true do end`},
	{"memory", `local t, i = {}, 0 while true do i = i + 1 t[i] = ("x"):rep(1000) end`},
	{"reads", `while true do range("/h/") get("/h/" .. revision()) end`},
	{"writes", `for i = 1, 2000 do put("/h/" .. i, r.value) end`},
	{"writes within the limits", `for i = 1, 900 do put("/h/" .. i, r.value) end`},
}

// TestHostileExtensionsDoNotHarmOthers prints the latency of a plain client
// while a script at its limits runs again and again, from several clients at
// once.
func TestHostileExtensionsDoNotHarmOthers(t *testing.T) {
	requireStoa(t)
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 4})
	conn, err := dial(c.Servers[0].ClientURL)
	require.NoError(t, err)
	defer conn.Close()
	register(t, conn, "/em/.limits", `{"failures": 0}`)
	alone := plainLatency(t, conn, 3*time.Second)
	t.Logf("%-25s p50 %v, p99 %v, most %v, %d puts", "alone:", alone.at(50), alone.at(99), alone.at(100), len(alone))
	for i, h := range hostileSources {
		name := fmt.Sprintf("h%d", i)
		register(t, conn, "/em/"+name, fmt.Sprintf(`return { scope = { "/h/" }, operations = { { op = "put", key = "/hostile/%s" } }, put = function(r) %s end }`, name, h.body))
		ctx, cancel := context.WithCancel(t.Context())
		var attackers sync.WaitGroup
		var calls atomic.Int64
		for j := range 4 {
			attackers.Go(func() {
				for ctx.Err() == nil {
					_, _ = pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("/hostile/" + name), Value: fmt.Append(nil, j)})
					calls.Add(1)
				}
			})
		}
		with := plainLatency(t, conn, 3*time.Second)
		cancel()
		attackers.Wait()
		t.Logf("%-25s p50 %v, p99 %v, most %v, %d puts beside %d calls", h.name+":", with.at(50), with.at(99), with.at(100), len(with), calls.Load())
		require.Positive(t, calls.Load())
		require.Less(t, with.at(99), time.Second, h.name)
		require.Less(t, with.at(100), 3*time.Second, h.name)
	}
	for _, s := range c.Servers {
		resident, err := s.Resident()
		require.NoError(t, err)
		t.Logf("%s: %d MB resident", s.Name, resident>>20)
		require.Less(t, resident, int64(2<<30))
	}
}

type latencies []time.Duration

func (l latencies) at(percent int) time.Duration {
	if len(l) == 0 {
		return time.Hour
	}
	return l[min(len(l)-1, len(l)*percent/100)].Round(10 * time.Microsecond)
}

// plainLatency is that of a client that uses no extension and puts keys of all
// partitions, sorted.
func plainLatency(t *testing.T, conn *grpc.ClientConn, d time.Duration) latencies {
	t.Helper()
	var all latencies
	for end, i := time.Now().Add(d), 0; time.Now().Before(end); i++ {
		began := time.Now()
		_, err := pb.NewKVClient(conn).Put(contextFor(t, 10*time.Second), &pb.PutRequest{Key: fmt.Appendf(nil, "/plain/%d/k", i%16), Value: value(i)})
		require.NoError(t, err)
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all
}
