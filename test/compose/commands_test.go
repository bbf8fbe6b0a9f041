package compose

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// Clients and executors of a queue are processes that are killed with SIGKILL, as are the servers of all
// three clusters, of both kinds: every command of which a client was told is carried out in every
// cluster once, in one order, which is that of the clients; of any other command the same or nothing.
func TestCommands(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	all := startEach(t, "stoa", "stoa", "etcd")
	crew := &commandCrew{T: t, all: all, rnd: rnd, told: map[string]bool{}}
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	procs := []*exec.Cmd{crew.start("executor"), crew.start("executor"), crew.start("client"), crew.start("client"), crew.start("client")}
	for sleep(ctx, time.Duration(100+rnd.IntN(400))*time.Millisecond) {
		if rnd.IntN(4) == 0 {
			c := all[rnd.IntN(len(all))]
			require.NoError(t, (&nemesis{cluster: c, rnd: rnd, say: t.Logf}).kill(ctx, c.Servers[0]))
			continue
		}
		i := rnd.IntN(len(procs))
		role := []string{"executor", "executor", "client", "client", "client"}[i]
		crew.kill(procs[i])
		procs[i] = crew.start(role)
	}
	for _, p := range procs {
		crew.kill(p)
	}
	crew.start("executor") // it may have to wait for the lease of one that was killed
	last := crew.start("client")
	require.Eventually(t, func() bool { return crew.done() > 0 }, time.Minute, 100*time.Millisecond, "no client is told that a command is done")
	crew.kill(last)
	c := all.queueing(t)
	require.Eventually(t, func() bool {
		st, err := c.CommandStatus(t.Context())
		return err == nil && st.Entries == 0
	}, time.Minute, 100*time.Millisecond, "commands are left in the queue")
	crew.check()
}

func (all clusters) queueing(t testing.TB) *compose.Client {
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}, Timeout: 5 * time.Second}
	for i, c := range all {
		cfg.Clusters[name(i)] = compose.Cluster{Endpoints: urls(c.voters)}
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: prefix(i), Cluster: name(i)})
	}
	c, err := compose.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// commandCrew is the processes of the test.
type commandCrew struct {
	*testing.T
	all clusters
	rnd *rand.Rand
	no  int

	mu      sync.Mutex
	told    map[string]bool // by command; true: done
	missing []string
}

const (
	roleVariable = "STOA_COMMANDS_ROLE"
	endpointsVar = "STOA_COMMANDS_ENDPOINTS"
)

func (k *commandCrew) start(role string) *exec.Cmd {
	k.no++
	var endpoints [][]string
	for _, c := range k.all {
		endpoints = append(endpoints, urls(c.voters))
	}
	where, err := json.Marshal(endpoints)
	require.NoError(k, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestCommandsRole$", "-test.timeout=1h")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", roleVariable, role, k.no), endpointsVar+"="+string(where))
	out, err := cmd.StdoutPipe()
	require.NoError(k, err)
	require.NoError(k, cmd.Start())
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for s := bufio.NewScanner(out); s.Scan(); {
			k.hear(s.Text())
		}
	}()
	k.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-heard
		_ = cmd.Wait()
	})
	return cmd
}

func (k *commandCrew) hear(line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch what, command, _ := strings.Cut(line, " "); what {
	case "taken":
		k.told[command] = false
	case "done":
		k.told[command] = true
	case "missing":
		k.missing = append(k.missing, command)
	}
}

func (k *commandCrew) kill(p *exec.Cmd) { require.NoError(k, p.Process.Kill()) }

// TestCommandsRole is a process of TestCommands.
func TestCommandsRole(t *testing.T) {
	role, who, _ := strings.Cut(os.Getenv(roleVariable), " ")
	if role == "" {
		t.Skip("a process of TestCommands")
	}
	var endpoints [][]string
	require.NoError(t, json.Unmarshal([]byte(os.Getenv(endpointsVar)), &endpoints))
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}}
	for i, e := range endpoints {
		cfg.Clusters[name(i)] = compose.Cluster{Endpoints: e}
		cfg.Routes = append(cfg.Routes, compose.Route{Prefix: prefix(i), Cluster: name(i)})
	}
	c, err := compose.New(cfg)
	require.NoError(t, err)
	if role == "executor" {
		require.NoError(t, c.CarryOut(t.Context(), compose.CarryOutOptions{MaxTxnOps: 16}))
	}
	sendCommands(t, c, who)
}

// sendCommands sends and tells. Some commands leave out a cluster.
func sendCommands(t *testing.T, c *compose.Client, who string) {
	q, err := c.Commands()
	require.NoError(t, err)
	var out sync.Mutex
	say := func(what, command string) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(what, command)
	}
	room := make(chan struct{}, 64)
	for i := 0; ; i++ {
		room <- struct{}{}
		command := fmt.Sprintf("%s-%06d", who, i)
		var ops []clientv3.Op
		for cluster := range 3 {
			if i%5 == 1 && i%3 == cluster {
				continue
			}
			ops = append(ops, clientv3.OpPut(prefix(cluster)+"all/"+command, command), clientv3.OpPut(prefix(cluster)+"last", command))
		}
		if i%5 == 1 {
			ops = slices.DeleteFunc(ops, func(op clientv3.Op) bool { return strings.HasSuffix(string(op.KeyBytes()), "last") })
		}
		f := q.Send(ops...)
		go func() {
			defer func() { <-room }()
			if f.Taken(context.Background()) != nil {
				return
			}
			say("taken", command)
			if f.Done(context.Background()) != nil {
				return
			}
			say("done", command)
			key := string(ops[i%len(ops)].KeyBytes())
			if r, err := c.Get(context.Background(), key); err == nil && r.Count == 0 {
				say("missing", command)
			}
		}()
	}
}

// done is how many commands clients were told to be done.
func (k *commandCrew) done() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, done := range k.told {
		if done {
			n++
		}
	}
	return n
}

// check compares the clusters with each other and with what clients were told.
func (k *commandCrew) check() {
	done := k.done()
	require.Positive(k, done)
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Empty(k, k.missing, "done, and not seen by its client")
	revisions := map[string][3]int64{}
	var last []string
	for i, c := range k.all {
		r, err := dial(k.T, c.voters...).Get(k.Context(), prefix(i), clientv3.WithPrefix())
		require.NoError(k, err)
		for _, kv := range r.Kvs {
			if command, ok := strings.CutPrefix(string(kv.Key), prefix(i)+"all/"); ok {
				require.EqualValues(k, 1, kv.Version, "%s is carried out twice", kv.Key)
				at := revisions[command]
				at[i] = kv.ModRevision
				revisions[command] = at
				continue
			}
			last = append(last, string(kv.Value))
		}
	}
	require.Len(k, slices.Compact(last), 1, "the last command is another one: %v", last)
	for command := range k.told {
		require.Contains(k, revisions, command, "it was told to be in the queue")
	}
	k.Logf("%d commands, %d told, %d told to be done", len(revisions), len(k.told), done)
	k.inOneOrder(revisions)
}

// inOneOrder compares each cluster's order with that of the others. Several commands may have
// one revision.
func (k *commandCrew) inOneOrder(revisions map[string][3]int64) {
	var commands []string
	for command, at := range revisions {
		commands = append(commands, command)
		var no int
		_, err := fmt.Sscanf(command[strings.Index(command, "-")+1:], "%d", &no)
		require.NoError(k, err)
		for cluster, r := range at {
			require.Equal(k, no%5 == 1 && no%3 == cluster, r == 0, "%s: %v", command, at)
		}
	}
	for a := range 3 {
		for b := range 3 {
			both := slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return revisions[c][a] == 0 || revisions[c][b] == 0 })
			slices.SortFunc(both, func(x, y string) int { return int(revisions[x][a] - revisions[y][a]) })
			var before, now int64 // newest revision in b, of commands before, and up to this one
			for i, c := range both {
				at := revisions[c]
				if i > 0 && revisions[both[i-1]][a] < at[a] {
					before = now
				}
				require.GreaterOrEqual(k, at[b], before, "%s is before others in cluster %d and behind them in %d", c, b, a)
				now = max(now, at[b])
			}
		}
		slices.Sort(commands)
		for i := 1; i < len(commands); i++ {
			c, p := commands[i], commands[i-1]
			if c[:strings.Index(c, "-")] == p[:strings.Index(p, "-")] && revisions[c][a] != 0 {
				require.GreaterOrEqual(k, revisions[c][a], revisions[p][a], "%s and %s", p, c)
			}
		}
	}
}
