package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

func TestMessagesArriveInOrder(t *testing.T) {
	servers := cluster(t, 3, nil)
	const each = 2000
	var senders sync.WaitGroup
	for id, s := range servers {
		for other := range servers {
			if other == id {
				continue
			}
			senders.Go(func() {
				for i := range uint64(each) {
					b := call(i)
					b.Raft = [][]byte{binary.BigEndian.AppendUint64(nil, i)}
					require.True(t, s.Send(other, b))
				}
			})
		}
	}
	senders.Wait()
	for id, s := range servers {
		for other := range servers {
			if other == id {
				continue
			}
			eventually(t, func() bool { return len(s.calls(other)) == each }, "all of %d arrives at %d", other, id)
			var raft [][]byte
			for _, b := range s.batchesFrom(other) {
				raft = append(raft, b.Raft...)
			}
			for i := range uint64(each) {
				require.Equal(t, i, s.calls(other)[i])
				require.Equal(t, i, binary.BigEndian.Uint64(raft[i]))
			}
		}
	}
}

func TestQueuedMessagesAreBatched(t *testing.T) {
	servers := cluster(t, 2, nil)
	servers[2].shut()
	const sent = 5000
	// With the receiver blocked, the window fills, and further batches have to
	// wait.
	for i := range uint64(sent) {
		b := call(i)
		b.Raft = [][]byte{make([]byte, 4<<10)}
		require.True(t, servers[1].Send(2, b))
	}
	servers[2].open()
	eventually(t, func() bool { return len(servers[2].calls(1)) == sent }, "everything arrives")
	require.Less(t, len(servers[2].batchesFrom(1)), sent/4)
}

func TestQueueIsBoundedAndLossIsReported(t *testing.T) {
	servers := cluster(t, 2, func(s *setup) { s.queueBytes = 1 << 20 })
	servers[2].shut()
	var taken []uint64
	refused := 0
	for i := uint64(0); refused < 10; i++ {
		require.Less(t, i, uint64(2000), "nothing is refused")
		b := call(i)
		b.Raft = [][]byte{make([]byte, 64<<10)}
		if servers[1].Send(2, b) {
			taken = append(taken, i)
		} else {
			refused++
		}
		time.Sleep(100 * time.Microsecond)
	}
	servers[1].peer(2).queue.mu.Lock()
	waiting := servers[1].peer(2).queue.bytes
	servers[1].peer(2).queue.mu.Unlock()
	require.LessOrEqual(t, waiting, 1<<20)
	servers[2].open()
	eventually(t, func() bool { return len(servers[2].calls(1)) == len(taken) }, "what was taken arrives")
	require.Equal(t, taken, servers[2].calls(1))
	eventually(t, func() bool { return servers[1].timesUnreachable(2) > 0 }, "the loss is reported")
}

func TestRestartedPeerIsBackAtOnce(t *testing.T) {
	servers := cluster(t, 2, nil)
	restart := func(down time.Duration) (took time.Duration) {
		before, since := servers[1].timesUnreachable(2), servers[1].ConnectedSince(2)
		servers[2].kill()
		eventually(t, func() bool { return servers[1].timesUnreachable(2) > before }, "the loss of the link is reported")
		time.Sleep(down)
		began := time.Now()
		servers[2] = start(t, setup{id: 2, addr: servers[2].addr, peers: map[uint64]string{1: "http://" + servers[1].addr}})
		servers[1].awaitLink(t, 2)
		servers[2].awaitLink(t, 1)
		took = time.Since(began)
		require.True(t, servers[1].ConnectedSince(2).After(since), "another process")
		t.Logf("down for %v, linked both ways %v after the restart", down, took)
		require.True(t, servers[1].Send(2, call(7)))
		eventually(t, func() bool { return len(servers[2].calls(1)) == 1 }, "the link works")
		return took
	}
	for _, down := range []time.Duration{0, 20 * time.Millisecond, time.Second} {
		// About 100 ms on a quiet machine. One that stands still for a second doesn't do so each time.
		for attempt := 1; restart(down) >= time.Second; attempt++ {
			require.Less(t, attempt, 5, "each restart takes a second and more")
		}
	}
}

func TestItemsSentWithoutALinkWaitOrAreReported(t *testing.T) {
	l := listen(t, "")
	url := "http://" + l.Addr().String()
	l.Close()
	s := start(t, setup{id: 1, peers: map[uint64]string{2: url}})
	require.True(t, s.Send(2, call(1)))
	eventually(t, func() bool { return s.timesUnreachable(2) > 0 }, "the failed dial is reported")
	require.False(t, s.Connected(2))
	require.False(t, s.Send(9, call(1)), "an unknown peer")
}

func TestSilentLinkIsCut(t *testing.T) {
	const silence = time.Second // more than a machine with other work stands still for
	l := listen(t, "")
	p := newProxy(t, l.Addr().String())
	a := start(t, setup{id: 1, peers: map[uint64]string{2: p.url()}, silence: silence})
	b := startOn(t, l, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, silence: silence})
	a.awaitLink(t, 2)
	time.Sleep(2 * silence)
	require.Zero(t, a.timesUnreachable(2), "an idle link is not a dead one")

	p.freeze(true)
	began, since := time.Now(), a.ConnectedSince(2)
	eventually(t, func() bool { return !a.Connected(2) }, "the dialler notices")
	eventually(t, func() bool { return a.ConnectedSince(2).IsZero() }, "it is away")
	require.Less(t, time.Since(began), 5*time.Second)
	eventually(t, func() bool { return a.timesUnreachable(2) > 0 }, "and says so")
	b.awaitLog(t, errSilent.Error())
	p.cut() // and heal
	a.awaitLink(t, 2)
	require.Equal(t, since, a.ConnectedSince(2), "it was away for a moment only")
}

// A slow handler is not a dead link.
func TestBusyReceiverIsNotSilent(t *testing.T) {
	const silence = time.Second // as above
	servers := cluster(t, 2, func(s *setup) { s.silence = silence })
	servers[2].shut()
	require.True(t, servers[1].Send(2, call(1)))
	time.Sleep(5 * silence / 2)
	require.True(t, servers[1].Connected(2))
	servers[2].open()
	require.True(t, servers[1].Send(2, call(2)))
	eventually(t, func() bool { return len(servers[2].calls(1)) == 2 }, "both arrive")
	require.Zero(t, servers[1].timesUnreachable(2))
}

func TestPeerCanMoveAndBeRemoved(t *testing.T) {
	servers := cluster(t, 2, nil)
	servers[2].kill()
	moved := start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + servers[1].addr}})
	require.NoError(t, servers[1].UpdatePeer(2, []string{"http://" + moved.addr}))
	servers[1].awaitLink(t, 2)
	moved.awaitLink(t, 1)

	servers[1].RemovePeer(2)
	require.False(t, servers[1].Send(2, call(1)))
	moved.awaitLog(t, "not a member")
	eventually(t, func() bool { return !moved.Connected(1) }, "the removed peer is cut off")

	require.NoError(t, servers[1].UpdatePeer(2, []string{"http://" + moved.addr}))
	servers[1].awaitLink(t, 2)
	moved.awaitLink(t, 1)
	require.Error(t, servers[1].UpdatePeer(2, []string{"ftp://x:1"}))
	require.Error(t, servers[1].UpdatePeer(2, nil))
}

// New URLs are dialled once the link that there is has ended: the peer may be told of them before it listens there, and they may
// be wrong.
func TestNewURLsKeepALinkThatWorks(t *testing.T) {
	servers := cluster(t, 2, nil)
	servers[1].awaitLink(t, 2)
	require.NoError(t, servers[1].UpdatePeer(2, []string{"http://127.0.0.1:1"}))
	require.True(t, servers[1].Send(2, call(1)))
	eventually(t, func() bool { return len(servers[2].calls(1)) == 1 }, "it is heard")
	require.True(t, servers[1].Connected(2))
	require.Zero(t, servers[1].timesUnreachable(2))
	done := servers[2].keep()
	require.NoError(t, servers[1].SendSnapshot(t.Context(), 2, header(1000), bytes.NewReader(random(1000))))
	require.NoError(t, (<-done).err)

	servers[2].kill()
	servers[1].awaitLog(t, "dial http://127.0.0.1:1")
}

// A peer with several URLs is reached by any that works.
func TestSecondURLIsTried(t *testing.T) {
	b := start(t, setup{id: 2})
	dead := listen(t, "")
	dead.Close()
	a := start(t, setup{id: 1})
	require.NoError(t, b.UpdatePeer(1, []string{"http://" + a.addr}))
	require.NoError(t, a.UpdatePeer(2, []string{"http://" + dead.Addr().String(), "http://" + b.addr}))
	a.awaitLink(t, 2)
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peer.sock")
	a := start(t, setup{id: 1, peers: map[uint64]string{2: "unix://" + path}})
	start(t, setup{id: 2, addr: path, peers: map[uint64]string{1: "http://" + a.addr}})
	a.awaitLink(t, 2)
}

func TestSomethingElseAnswers(t *testing.T) {
	l := listen(t, "")
	web := &http.Server{Handler: http.NotFoundHandler()}
	go web.Serve(l)
	defer web.Close()
	a := start(t, setup{id: 1, peers: map[uint64]string{2: "http://" + l.Addr().String()}})
	a.awaitLog(t, "no link to the peer")
	require.False(t, a.Connected(2))
}

func TestCloseIsFinal(t *testing.T) {
	before := runtime.NumGoroutine()
	servers := cluster(t, 2, nil)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	senders.Go(func() {
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				servers[1].Send(2, call(i))
				runtime.Gosched()
			}
		}
	})
	eventually(t, func() bool { return len(servers[2].calls(1)) > 100 }, "traffic")
	servers[2].Transport.Close()
	got := len(servers[2].calls(1))
	time.Sleep(50 * time.Millisecond)
	require.Len(t, servers[2].calls(1), got)
	require.False(t, servers[2].Send(1, call(1)))
	require.Error(t, servers[2].UpdatePeer(3, []string{"http://127.0.0.1:1"}))
	close(stop)
	senders.Wait()
	servers[1].stop()
	servers[2].stop()
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, "no goroutine is left over")
}

func TestOptionsAreChecked(t *testing.T) {
	for _, urls := range [][]string{nil, {"127.0.0.1:2380"}, {"http://nowhere"}, {"https://127.0.0.1:1"}, {"unix://"}, {"http://[::1:80"}} {
		_, err := New(Options{ID: 1, Handler: newInbox(), Peers: map[uint64][]string{2: urls}})
		require.ErrorContains(t, err, "peer 2", "%v", urls)
	}
	_, err := New(Options{Handler: newInbox()})
	require.Error(t, err)
	_, err = New(Options{ID: 1, Handler: newInbox(), Peers: map[uint64][]string{1: nil}})
	require.NoError(t, err, "a server need not know how to dial itself")
}

func FuzzParseURL(f *testing.F) {
	for _, u := range []string{"http://127.0.0.1:2380", "https://[::1]:1", "unix:///run/x.sock", "unix://h:1", "http://"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := parseURL(raw, nil)
		if err != nil {
			return
		}
		require.NotEmpty(t, a.host)
		if a.network == "tcp" {
			_, _, err := net.SplitHostPort(a.host)
			require.NoError(t, err)
		}
	})
}

// Per batch: both ends, the kernel's loopback and the protobuf in between.
func BenchmarkLink(b *testing.B) {
	for _, messages := range []int{1, 64} {
		b.Run(fmt.Sprintf("messages=%d", messages), func(b *testing.B) {
			done := make(chan struct{}, 1<<10)
			servers := cluster(b, 2, nil)
			servers[2].Transport.o.Handler = &counter{done: done}
			raft := slices.Repeat(appendOf300(), messages)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			for range b.N {
				servers[1].Send(2, &peerpb.Batch{Raft: raft})
				<-done
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// As above without waiting for each batch: what merging saves.
func BenchmarkLinkPipelined(b *testing.B) {
	done := make(chan struct{}, 1<<20)
	servers := cluster(b, 2, nil)
	servers[2].Transport.o.Handler = &countBytes{done: done}
	raft := appendOf300()
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	const window = 256
	inFlight := 0
	for range b.N {
		if inFlight == window {
			<-done
			inFlight--
		}
		servers[1].Send(2, &peerpb.Batch{Raft: raft})
		inFlight++
	}
	for ; inFlight > 0; inFlight-- {
		<-done
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

// appendOf300 is like an append of one entry of 300 B: a head, and the data.
func appendOf300() [][]byte { return [][]byte{make([]byte, 40), make([]byte, 300)} }

// cpu is what the whole process has used, both ends of the link included.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type counter struct {
	noSnapshots
	done chan struct{}
}

func (c *counter) Receive(uint64, *peerpb.Batch) { c.done <- struct{}{} }

type countBytes struct {
	noSnapshots
	done chan struct{}
}

func (c *countBytes) Receive(_ uint64, b *peerpb.Batch) {
	for range len(b.Raft) / len(appendOf300()) {
		c.done <- struct{}{}
	}
}
