package crashpoints

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/disk"
	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/process/syscalls"
)

var stride = flag.Int("stride", 5, "kill at one of so many calls")

func TestMain(m *testing.M) {
	syscalls.Main()
	flag.Parse()
	os.Exit(m.Run())
}

const (
	flushEvery = "--backend-batch-interval=50ms"
	afterwards = 150 * time.Millisecond // until a change is flushed
	mostCalls  = 400
)

// quick are flags for short elections.
var quick = []string{"--heartbeat-interval=20", "--election-timeout=200", flushEvery}

func connect(t *testing.T, servers ...*process.Server) *client.Client {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL)
	}
	c, err := client.New(client.Config{Endpoints: urls})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func attach(t *testing.T, s *process.Server, p syscalls.Plan) *syscalls.Tap {
	t.Helper()
	if p.Path == "" {
		p.Path = s.DataDir
	}
	tap, err := syscalls.Attach(s.Pid(), p)
	if errors.Is(err, syscalls.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return tap
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAcknowledgedSurvives(t *testing.T) {
	for _, thing := range things {
		t.Run(thing.name, func(t *testing.T) {
			t.Parallel()
			survives(t, &thing, process.Place{Host: "127.0.0.1"}, func() error { return nil })
		})
	}
}

// The same, and the disk loses what wasn't synced: at a call, whatever it does, nothing that was acknowledged may be
// in memory alone.
func TestAcknowledgedSurvivesPowerCuts(t *testing.T) {
	for _, thing := range things {
		t.Run(thing.name, func(t *testing.T) {
			t.Parallel()
			at, d, ok := onDisk(t)
			if !ok {
				t.Skip("no file system can be mounted here")
			}
			rnd := rand.New(rand.NewPCG(1, uint64(len(thing.name))))
			survives(t, &thing, at, func() error { return d.Lose(rnd) })
		})
	}
}

// onDisk is a place for a server on a disk of its own; not ok where none can be mounted.
func onDisk(t *testing.T) (at process.Place, d *disk.Disk, ok bool) {
	at = process.Place{Host: "127.0.0.1", DataDir: t.TempDir()}
	d, err := disk.Mount(at.DataDir)
	if errors.Is(err, disk.ErrNotPermitted) {
		return at, nil, false
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return at, d, true
}

// survives kills a server at each call of a thing, and does what comes with that.
func survives(t *testing.T, th *thing, at process.Place, lose func() error) {
	c := process.StartT(t, process.Spec{Partitions: 3, Args: quick, Places: []process.Place{at}})
	s := c.Servers[0]
	conn := connect(t, s)
	// Users need a later version of the cluster than the one that it begins with.
	_, err := conn.UserAddWithOptions(within(t, 20*time.Second), "first", "", &clientv3.UserAddOptions{NoPassword: true})
	require.NoError(t, err)
	happened := map[int]bool{} // by the number of the request, once it is known
	kills, acknowledged := 0, 0
	for n := 0; ; n++ {
		acked, killed := hit(t, c, th, n, n**stride, lose)
		conn := connect(t, s)
		is, err := th.there(within(t, 10*time.Second), conn, n)
		require.NoError(t, err, "%s %d, killed %v: in part", th.name, n, killed)
		if acked {
			acknowledged++
			require.True(t, is, "%s %d was acknowledged and is lost, killed %v", th.name, n, killed)
		}
		happened[n] = is
		require.NoError(t, conn.Close())
		if killed == nil {
			require.True(t, acked)
			break
		}
		kills++
		t.Logf("%d: killed before %v, acknowledged: %v", n**stride, killed, acked)
		require.Less(t, n**stride, mostCalls)
	}
	conn = connect(t, s)
	for n, want := range happened {
		if th.gone {
			continue
		}
		is, err := th.there(within(t, 10*time.Second), conn, n)
		require.NoError(t, err)
		require.Equal(t, want, is, "%s %d, looked at twice", th.name, n)
	}
	require.Positive(t, kills)
	t.Logf("killed at %d calls, of which %d after the answer", kills, acknowledged-1)
}

// hit does a thing and kills the server at a call, or not, if the thing is over before. The
// server runs again when it returns.
func hit(t *testing.T, c *process.Cluster, th *thing, n, call int, lose func() error) (acked bool, killed *syscalls.Call) {
	s := c.Servers[0]
	conn := connect(t, s)
	defer conn.Close()
	if th.prepare != nil {
		require.NoError(t, th.prepare(within(t, 10*time.Second), conn, n))
	}
	_, err := conn.Get(within(t, 10*time.Second), "/warm")
	require.NoError(t, err)
	time.Sleep(afterwards)
	tap := attach(t, s, syscalls.Plan{Kinds: syscalls.Changes, Skip: call, Kill: true})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- th.do(ctx, conn, n) }()

	over := time.Now().Add(15 * time.Second)
	for asked := true; s.Running() && time.Now().Before(over); time.Sleep(time.Millisecond) {
		select {
		case err := <-answer:
			if asked { // what follows an answer counts, too
				asked, over = false, time.Now().Add(afterwards)
			}
			answer <- err
		default:
		}
	}
	calls := tap.Detach()
	if c, ok := tap.Done(); ok {
		killed = &c
	}
	if killed == nil {
		require.NoError(t, <-answer, "%v", calls)
		return true, nil
	}
	_, err = s.Wait(10 * time.Second)
	require.NoError(t, err)
	require.NoError(t, lose())
	if !th.outlives {
		time.Sleep(5 * time.Millisecond) // an answer may be on its way
		cancel()
		err = <-answer
		require.NoError(t, c.Restart(t.Context(), s))
		return err == nil, killed
	}
	require.NoError(t, c.Restart(t.Context(), s))
	require.NoError(t, <-answer)
	return true, killed
}
