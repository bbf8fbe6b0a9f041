package transport

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server that is behind in the list of members hears a new one, and answers it.
func TestAServerThatIsNotKnownYetBecomesAPeer(t *testing.T) {
	a := start(t, setup{id: 1})
	l := listen(t, "")
	b := startOn(t, l, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, urls: []string{"http://127.0.0.1:1", "http://" + l.Addr().String()}})
	b.awaitLink(t, 1)
	require.True(t, b.Send(1, call(5)))
	eventually(t, func() bool { return len(a.calls(2)) == 1 }, "it is heard")
	a.awaitLink(t, 2)
	require.True(t, a.Send(2, call(6)))
	eventually(t, func() bool { return len(b.calls(1)) == 1 }, "it is answered")
	require.Equal(t, []uint64{2}, a.Peers())
}

func TestAServerThatIsNotKnownAndHasLostItsDataIsExpelled(t *testing.T) {
	a := start(t, setup{id: 1, meet: func(uint64, Mark, uint64) error { return Outdated("it has lost its data") }})
	told := make(chan error, 100)
	start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, urls: []string{"http://127.0.0.1:1"},
		mark: Mark{Data: 0xb, Starts: 5}, expelled: func(err error) { told <- err }})
	require.EqualError(t, <-told, "it has lost its data")
	require.Empty(t, a.Peers())
}

func TestURLsThatCanNotBeUsedAreRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	md := a.identity(1)
	md.Set(keyFrom, "2")
	md.Set(keyURLs, "ftp://x")
	err := linkWith(t, a, md)
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorContains(t, err, "ftp")
}

// A member that was removed while it had a link is cut off, and told why when it dials
// again.
func TestARemovedServerIsTold(t *testing.T) {
	var gone atomic.Bool
	told := make(chan struct{}, 100)
	l := listen(t, "")
	a := startOn(t, l, setup{id: 1, isRemoved: func(id uint64) bool { return id == 2 && gone.Load() }})
	b := start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, urls: []string{"http://127.0.0.1:1"}, removed: func() { told <- struct{}{} }})
	b.awaitLink(t, 1)
	select {
	case <-told:
		require.Fail(t, "it is a member")
	default:
	}
	gone.Store(true)
	a.RemovePeer(2)
	<-told
	require.Empty(t, a.Peers())
	a.awaitLog(t, "server 2 was removed from cluster c1")
}
