package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/version"
)

const testCluster = 0xc1

// server is one transport with its listener: what the daemon would wire up.
type server struct {
	*Transport
	*inbox
	logs *observer.ObservedLogs
	grpc *grpc.Server
	addr string
}

// setup describes a server of a test; what is zero has a default.
type setup struct {
	id, cluster  uint64
	addr         string // where to listen; default: any loopback port
	peers        map[uint64]string
	silence      time.Duration
	queueBytes   int
	tls, tlsDial *tls.Config
	mark         Mark
	meet         func(peer uint64, m Mark, start uint64) error
	expelled     func(error)
	urls         []string
	isRemoved    func(uint64) bool
	removed      func()
	known        version.Known
	level        func() version.Level
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	network := "tcp"
	if addr == "" {
		addr = "127.0.0.1:0"
	} else if addr[0] == '/' {
		network = "unix"
	}
	var l net.Listener
	var err error
	for range 50 { // a port that was just given up may not be free at once
		if l, err = net.Listen(network, addr); err == nil {
			return l
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.NoError(t, err)
	return nil
}

func start(t testing.TB, s setup) *server {
	t.Helper()
	return startOn(t, listen(t, s.addr), s)
}

func startOn(t testing.TB, l net.Listener, s setup) *server {
	t.Helper()
	if s.cluster == 0 {
		s.cluster = testCluster
	}
	if s.silence == 0 {
		s.silence = 2 * time.Second
	}
	core, logs := observer.New(zapcore.InfoLevel)
	in := newInbox()
	urls := map[uint64][]string{}
	for id, u := range s.peers {
		urls[id] = []string{u}
	}
	tr, err := New(Options{
		ID: s.id, ClusterID: s.cluster, Peers: urls, TLS: s.tlsDial, Handler: in, Logger: zap.New(core),
		Silence: s.silence, QueueBytes: s.queueBytes, Mark: s.mark, Meet: s.meet, Expelled: s.expelled,
		URLs: func() []string { return s.urls }, IsRemoved: s.isRemoved, Removed: s.removed, Known: s.known, Level: s.level,
	})
	require.NoError(t, err)
	opts := ServerOptions()
	if s.tls != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.tls)))
	}
	gs := grpc.NewServer(opts...)
	tr.Register(gs)
	go gs.Serve(l)
	tr.Start()
	srv := &server{Transport: tr, inbox: in, logs: logs, grpc: gs, addr: l.Addr().String()}
	t.Cleanup(srv.stop)
	return srv
}

// stop is a graceful shutdown; kill is as near to kill -9 as one process can
// get.
func (s *server) stop() {
	s.open()
	s.Transport.Close()
	s.grpc.Stop()
}

func (s *server) kill() {
	s.grpc.Stop()
	s.stop()
}

// cluster starts n servers that know each other, with ids from 1.
func cluster(t testing.TB, n int, adapt func(*setup)) map[uint64]*server {
	t.Helper()
	listeners, urls := map[uint64]net.Listener{}, map[uint64]string{}
	for id := uint64(1); id <= uint64(n); id++ {
		listeners[id] = listen(t, "")
		urls[id] = "http://" + listeners[id].Addr().String()
	}
	servers := map[uint64]*server{}
	for id, l := range listeners {
		s := setup{id: id, peers: urls}
		if adapt != nil {
			adapt(&s)
		}
		servers[id] = startOn(t, l, s)
	}
	for id, s := range servers {
		for other := range servers {
			if other != id {
				s.awaitLink(t, other)
			}
		}
	}
	return servers
}

func (s *server) awaitLink(t testing.TB, to uint64) {
	t.Helper()
	eventually(t, func() bool { return s.Connected(to) }, "server %d has a link to server %d", s.o.ID, to)
}

func (s *server) awaitLog(t testing.TB, text string) {
	t.Helper()
	eventually(t, func() bool {
		for _, e := range s.logs.All() {
			if strings.Contains(e.Message+" "+fmt.Sprint(e.ContextMap()["error"]), text) {
				return true
			}
		}
		return false
	}, "server %d logs %q", s.o.ID, text)
}

func eventually(t testing.TB, ok func() bool, format string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	require.Fail(t, "not in time: "+fmt.Sprintf(format, args...))
}

// inbox is a handler that remembers everything and can be made to block.
type inbox struct {
	mu          sync.Mutex
	batches     map[uint64][]*peerpb.Batch
	unreachable map[uint64]int
	gate        chan struct{} // nil: open

	install func(ctx context.Context, from uint64, h *peerpb.SnapshotHeader, r io.Reader) error
}

func newInbox() *inbox {
	return &inbox{batches: map[uint64][]*peerpb.Batch{}, unreachable: map[uint64]int{}}
}

func (in *inbox) Receive(from uint64, b *peerpb.Batch) {
	in.mu.Lock()
	gate := in.gate
	in.mu.Unlock()
	if gate != nil {
		<-gate
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.batches[from] = append(in.batches[from], b)
}

func (in *inbox) Unreachable(peer uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unreachable[peer]++
}

func (in *inbox) InstallSnapshot(ctx context.Context, from uint64, h *peerpb.SnapshotHeader, r io.Reader) error {
	return in.install(ctx, from, h, r)
}

func (in *inbox) shut() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.gate = make(chan struct{})
}

func (in *inbox) open() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.gate != nil {
		close(in.gate)
		in.gate = nil
	}
}

// calls are the ids of all calls that came from a peer, in order.
func (in *inbox) calls(from uint64) (ids []uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, b := range in.batches[from] {
		for _, c := range b.Calls {
			ids = append(ids, c.Id)
		}
	}
	return ids
}

func (in *inbox) batchesFrom(from uint64) []*peerpb.Batch {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.batches[from]
}

func (in *inbox) timesUnreachable(peer uint64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.unreachable[peer]
}

func call(id uint64) *peerpb.Batch {
	return &peerpb.Batch{Calls: []*peerpb.Call{{Id: id}}}
}

// proxy stands between two servers, where the network would be.
type proxy struct {
	l      net.Listener
	target string

	mu     sync.Mutex
	frozen bool
	conns  []net.Conn
	passed int // bytes towards the target
	limit  int // cut all connections after that many; 0: never
}

func newProxy(t testing.TB, target string) *proxy {
	p := &proxy{l: listen(t, ""), target: target}
	t.Cleanup(func() { p.l.Close(); p.cut() })
	go func() {
		for {
			c, err := p.l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) url() string { return "http://" + p.l.Addr().String() }

func (p *proxy) serve(c net.Conn) {
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, far)
	p.mu.Unlock()
	go p.pump(c, far, true)
	p.pump(far, c, false)
}

func (p *proxy) pump(from, to net.Conn, count bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		for p.isFrozen() {
			time.Sleep(time.Millisecond)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if count && p.count(n) {
			p.cut()
			return
		}
	}
}

func (p *proxy) count(n int) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed += n
	return p.limit > 0 && p.passed > p.limit
}

func (p *proxy) isFrozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

// freeze stops all bytes without closing anything, as a cut cable does.
func (p *proxy) freeze(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = on
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// noSnapshots completes a handler that only receives.
type noSnapshots struct{}

func (noSnapshots) InstallSnapshot(context.Context, uint64, *peerpb.SnapshotHeader, io.Reader) error {
	return io.ErrUnexpectedEOF
}
func (noSnapshots) Unreachable(uint64) {}
