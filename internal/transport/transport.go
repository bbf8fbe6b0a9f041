package transport

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/version"
)

// Handler receives the messages of the other servers. Calls for different peers
// run at the same time; calls of Receive for one peer never do.
type Handler interface {
	// Receive gets a batch, which it may keep. While it runs, the peer's link
	// is not read: blocking here is what slows a peer down.
	Receive(from uint64, b *peerpb.Batch)
	// InstallSnapshot stores what r delivers and returns once that is durable.
	// It must read r to io.EOF, which alone means that the snapshot is whole.
	// ctx ends when the sender gives up or the transport is closed.
	InstallSnapshot(ctx context.Context, from uint64, h *peerpb.SnapshotHeader, r io.Reader) error
	// Unreachable reports that messages to peer are or may be lost. It runs on
	// the peer's own goroutine and must not wait for the peer.
	Unreachable(peer uint64)
}

// Options are fixed for the life of a Transport. Zero fields get their
// defaults, where one is named.
type Options struct {
	ID        uint64
	ClusterID uint64
	// Partitions is the number of groups that each server of the cluster must
	// have.
	Partitions int
	// Mark is this server's data directory, as it shows it to the others; zero: it
	// shows none. Meet is called with that of each peer, before a link with it is used
	// for anything, and its error refuses the link: for good if it is an [Outdated], or else the peer may
	// try again. It may wait for the disk. start names the peer's process.
	Mark Mark
	Meet func(peer uint64, m Mark, start uint64) error
	// Expelled is called when a peer refuses this server because its data is not what
	// it was, or because another server runs under its id. It should end the process.
	Expelled func(error)
	// IsRemoved reports whether a server was removed from the cluster and is not needed
	// any more; it is refused, and told why. nil: none was.
	IsRemoved func(id uint64) bool
	// Removed is called when a peer refuses this server because it was removed from the
	// cluster. It should end the process, and may be called again.
	Removed func()
	// URLs returns those at which this server is reached by peers that don't know it yet:
	// one that is behind doesn't have a new member in its list. nil: it names none.
	URLs func() []string
	// Level is the version of the cluster, as far as this server knows: a server whose program
	// doesn't know it is refused. nil: the oldest. Known is what this program knows; zero:
	// [version.This].
	Level func() version.Level
	Known version.Known
	// Incarnation tells this process from any other that claims the same id; 0: a
	// random number.
	Incarnation uint64
	// Peers are the other servers and their URLs: http, https, unix or unixs. An
	// entry for ID itself is ignored.
	Peers map[uint64][]string
	// TLS is used for https and unixs URLs; without it there can be none.
	TLS     *tls.Config
	Handler Handler
	Logger  *zap.Logger
	Metrics *Metrics
	// Silence is the time after which a silent link is closed: about an
	// election timeout. Default 1 s.
	Silence time.Duration
	// QueueBytes bounds the queue of one peer. Default 64 MiB.
	QueueBytes int
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Level == nil {
		o.Level = func() version.Level { return version.Oldest }
	}
	if o.Known == (version.Known{}) {
		o.Known = version.This
	}
	if o.Silence <= 0 {
		o.Silence = time.Second
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 64 << 20
	}
}

// Transport is safe for use by any number of goroutines.
type Transport struct {
	peerpb.UnimplementedPeerServer
	o Options
	// Tells this process from any other that claims the same id.
	incarnation uint64

	// Ends when Close begins; everything that waits, waits for it too.
	life context.Context
	end  context.CancelFunc
	// Everything that may call the handler.
	running sync.WaitGroup

	refused struct {
		sync.Mutex
		told map[string]bool // what the log says already
	}
	meeting chan struct{} // held while Options.Meet runs

	mu      sync.RWMutex
	started bool
	closed  bool
	peers   map[uint64]*peer
}

// New checks the options. Nothing is dialled or listened to before Start.
func New(o Options) (*Transport, error) {
	if o.ID == 0 || o.Handler == nil {
		return nil, errors.New("transport: an id and a handler are needed")
	}
	o.setDefaults()
	if o.Incarnation == 0 {
		var seed [8]byte
		rand.Read(seed[:]) //nolint:errcheck // it never fails, by its documentation
		o.Incarnation = binary.LittleEndian.Uint64(seed[:]) | 1
	}
	t := &Transport{o: o, incarnation: o.Incarnation, peers: map[uint64]*peer{}, meeting: make(chan struct{}, 1)}
	t.life, t.end = context.WithCancel(context.Background())
	for _, id := range slices.Sorted(maps.Keys(o.Peers)) {
		if id == o.ID {
			continue
		}
		if err := t.UpdatePeer(id, o.Peers[id]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Register adds the transport's service to a server of the peer port, which
// must have been made with ServerOptions.
func (t *Transport) Register(s *grpc.Server) { peerpb.RegisterPeerServer(s, t) }

// Start begins to dial the peers and to listen to them.
func (t *Transport) Start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started || t.closed {
		return
	}
	t.started = true
	for _, p := range t.peers {
		t.launch(p)
	}
}

// launch needs t.mu.
func (t *Transport) launch(p *peer) {
	t.running.Add(1)
	go func() {
		defer t.running.Done()
		p.run()
	}()
}

// Send queues b for a peer and returns at once. It reports false if it took
// nothing of b: the peer is unknown, too much is waiting for it already, or the
// transport is closed. b must not be changed afterwards; it may be sent to
// other peers as well.
//
// Accepted messages are sent in order as soon as the link is ready. Without a
// link they wait for the outcome of the next attempt to dial, and are dropped
// if that fails.
func (t *Transport) Send(to uint64, b *peerpb.Batch) bool {
	p := t.peer(to)
	if p == nil {
		return false
	}
	if !p.queue.push(b) {
		p.metrics.sendFailures.Inc()
		return false
	}
	return true
}

// Connected reports whether a peer has accepted this server's link.
func (t *Transport) Connected(id uint64) bool {
	p := t.peer(id)
	return p != nil && p.connected.Load()
}

// KnownBy are the levels that the program of a connected peer knows; not ok if the peer isn't
// connected.
func (t *Transport) KnownBy(id uint64) (k version.Known, ok bool) {
	p := t.peer(id)
	if p == nil || !p.connected.Load() {
		return k, false
	}
	return *p.known.Load(), true
}

// ConnectedSince is since when a peer has been connected, with gaps of at most 5 s; zero: it isn't now.
func (t *Transport) ConnectedSince(id uint64) time.Time {
	p := t.peer(id)
	if p == nil {
		return time.Time{}
	}
	if at := p.since.Load(); at != 0 {
		return started.Add(time.Duration(at))
	}
	return time.Time{}
}

// UpdatePeer adds a peer, or gives a known one other URLs, for when there is no link to it.
func (t *Transport) UpdatePeer(id uint64, urls []string) error {
	addrs, err := parseURLs(urls, t.o.TLS)
	if err != nil {
		return fmt.Errorf("transport: peer %x: %w", id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("transport: add peer %x: %w", id, errClosed)
	}
	if p := t.peers[id]; p != nil {
		p.setAddrs(addrs)
		return nil
	}
	p := newPeer(t, id, addrs)
	t.peers[id] = p
	if t.started {
		t.launch(p)
	}
	return nil
}

// Peers are the other servers, ascending.
func (t *Transport) Peers() []uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.peers))
}

// RemovePeer forgets a peer: its links are cut and it is refused from now on.
func (t *Transport) RemovePeer(id uint64) {
	t.mu.Lock()
	p := t.peers[id]
	delete(t.peers, id)
	t.mu.Unlock()
	if p != nil {
		p.stop(errRemoved)
	}
}

// Close cuts all links. It must not be called from the handler.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	for _, p := range t.peers {
		p.stop(errClosed)
	}
	t.mu.Unlock()
	t.end()
	t.running.Wait()
}

func (t *Transport) peer(id uint64) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil
	}
	return t.peers[id]
}

// Reasons for which a link is ended by this server.
var (
	errClosed   = errors.New("transport closed")
	errRemoved  = errors.New("peer removed")
	errSilent   = errors.New("link has been silent for too long")
	errNoAnswer = errors.New("no answer to the dial")
	errReplaced = errors.New("replaced by a newer link of the same server")
)
