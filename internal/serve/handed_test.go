package serve

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
)

// taker is a gRPC server that has a look at each connection as soon as it has it.
type taker struct {
	took func()
	mu   sync.Mutex
	all  []net.Listener
}

func (k *taker) Serve(l net.Listener) error {
	k.mu.Lock()
	k.all = append(k.all, l)
	k.mu.Unlock()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		k.took()
		c.Close()
	}
}

func (k *taker) GracefulStop() { k.Stop() }

func (k *taker) Stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.all {
		l.Close()
	}
}

// A connection that is in use isn't among those that Stop closes at once.
func TestConnectionsInUseAreNotFresh(t *testing.T) {
	ports, err := Listen("listen-client-urls", parseURLs(t, "http://127.0.0.1:0"), transport.SocketOpts{})
	require.NoError(t, err)
	var s *Server
	fresh := make(chan int)
	k := &taker{took: func() {
		s.mu.Lock()
		n := len(s.fresh)
		s.mu.Unlock()
		fresh <- n
	}}
	s = New(Options{GRPC: grpc.NewServer(), Direct: k})
	require.NoError(t, s.Serve(ports...))
	defer s.Stop(t.Context())
	for range 500 {
		c, err := net.Dial("tcp", ports[0].Addr().String())
		require.NoError(t, err)
		_, err = c.Write([]byte(http2.ClientPreface))
		require.NoError(t, err)
		require.Zero(t, <-fresh)
		c.Close()
	}
}
