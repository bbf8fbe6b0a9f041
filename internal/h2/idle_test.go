package h2_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/h2"
)

var idle = flag.Int("idle", 500, "idle connections, and a tenth of the idle streams, of TestIdleMemory")

// idleServer is the variable that makes this program a server on the transport that it names.
const idleServer = "H2_TEST_IDLE_SERVER"

func TestMain(m *testing.M) {
	if transport := os.Getenv(idleServer); transport != "" {
		serveIdle(transport)
		return
	}
	os.Exit(m.Run())
}

// serveIdle prints its address, and for each line that it reads how much memory it uses.
func serveIdle(transport string) {
	var s server = h2.NewServer(h2.Options{Inline: inline})
	if transport == "grpc-go" {
		s = grpc.NewServer()
	}
	grpc_testing.RegisterTestServiceServer(s, &service{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go s.Serve(l)
	fmt.Println(l.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var m runtime.MemStats
		for range 3 { // pools are emptied by the second, and stacks shrink
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		fmt.Println(m.HeapAlloc, m.StackInuse)
	}
}

// idleRig is a server in a process of its own.
type idleRig struct {
	t    *testing.T
	addr string
	ask  io.Writer
	out  *bufio.Reader
	open []net.Conn
}

func newIdleRig(t *testing.T, transport string) *idleRig {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), idleServer+"="+transport)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	r := &idleRig{t: t, ask: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		r.close()
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr, err := r.out.ReadString('\n')
	require.NoError(t, err)
	r.addr = strings.TrimSpace(addr)
	return r
}

// used is the server's memory, once what it needs no more has been collected.
func (r *idleRig) used() (heap, stacks int) {
	time.Sleep(100 * time.Millisecond) // goroutines that have answered end
	_, err := fmt.Fprintln(r.ask)
	require.NoError(r.t, err)
	_, err = fmt.Fscan(r.out, &heap, &stacks)
	require.NoError(r.t, err)
	_, err = r.out.ReadString('\n')
	require.NoError(r.t, err)
	return heap, stacks
}

func (r *idleRig) close() {
	for _, nc := range r.open {
		nc.Close()
	}
	r.open = nil
}

// dial opens a connection on which a number of calls have been answered once: a unary one, which is
// over, and streams, which go on.
func (r *idleRig) dial(streams int) {
	nc, err := net.Dial("tcp", r.addr)
	require.NoError(r.t, err)
	r.open = append(r.open, nc)
	require.NoError(r.t, nc.SetDeadline(time.Now().Add(time.Minute)))
	calls := frames(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		_ = f.WriteWindowUpdate(0, 1<<20)
		w := &wire{t: r.t}
		w.hpk = hpack.NewEncoder(&w.buf)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.block("EmptyCall"), EndHeaders: true})
		_ = f.WriteData(1, true, make([]byte, 5))
		message, _ := proto.Marshal(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: []*grpc_testing.ResponseParameters{{Size: 100}}})
		message = append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
		for id := uint32(3); id < uint32(3+2*streams); id += 2 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block("FullDuplexCall"), EndHeaders: true})
			_ = f.WriteData(id, false, message)
		}
	})
	_, err = nc.Write(append([]byte(http2.ClientPreface), calls...))
	require.NoError(r.t, err)
	f := http2.NewFramer(nc, nc)
	for answered, ended := 0, false; answered < streams || !ended; {
		got, err := f.ReadFrame()
		require.NoError(r.t, err)
		switch got := got.(type) {
		case *http2.DataFrame:
			if got.StreamID > 1 {
				answered++
			}
		case *http2.HeadersFrame:
			ended = ended || got.StreamEnded()
		case *http2.SettingsFrame:
			if !got.IsAck() {
				require.NoError(r.t, f.WriteSettingsAck())
			}
		}
	}
}

// Of a server's memory an idle connection takes about half of what it takes with grpc-go, and so does an idle
// stream, whose handler waits for the next message; DESIGN.md says why not less. (go test ./internal/h2 -run
// TestIdleMemory -v -idle 10000)
func TestIdleMemory(t *testing.T) {
	if !stacksAsReleased {
		t.Skip("the race detector takes memory of its own")
	}
	used := map[string][2]int{}
	for _, transport := range []string{"grpc-go", "own"} {
		r := newIdleRig(t, transport)
		for i, c := range []struct{ conns, streams int }{{*idle, 0}, {max(*idle/100, 1), 1000}} {
			r.dial(min(c.streams, 1)) // what there is once
			heap, stacks := r.used()
			for range c.conns {
				r.dial(c.streams)
			}
			moreHeap, moreStacks := r.used()
			n := max(c.conns*c.streams, c.conns)
			u := used[transport]
			u[i] = (moreHeap - heap + moreStacks - stacks) / n
			used[transport] = u
			t.Logf("%s, %d connections with %d streams each: heap %d B, stacks %d B each", transport, c.conns, c.streams, (moreHeap-heap)/n, (moreStacks-stacks)/n)
			r.close()
		}
	}
	for i, c := range []struct {
		what string
		most float64
	}{{"connection", 0.55}, {"stream", 0.65}} {
		own, theirs := used["own"][i], used["grpc-go"][i]
		part := float64(own) / float64(theirs)
		t.Logf("an idle %s: %d B, with grpc-go %d B: %.2fx", c.what, own, theirs, part)
		require.LessOrEqual(t, part, c.most, "of what an idle %s takes with grpc-go", c.what)
	}
}
