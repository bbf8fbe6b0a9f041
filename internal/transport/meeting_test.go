package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// The disk hangs on which a peer is to be noted, which dials again and again. One of its attempts waits for the disk, and the others end when the peer
// gives them up; once the disk works the link comes up.
func TestAPeerThatCanNotBeNoted(t *testing.T) {
	var meets atomic.Int64
	hung := make(chan struct{})
	const silence = 50 * time.Millisecond
	la, lb := listen(t, ""), listen(t, "")
	urls := map[uint64]string{1: "http://" + la.Addr().String(), 2: "http://" + lb.Addr().String()}
	a := startOn(t, la, setup{id: 1, peers: urls, silence: silence, mark: Mark{1, 1}, meet: func(uint64, Mark, uint64) error {
		meets.Add(1)
		<-hung
		return nil
	}})
	b := startOn(t, lb, setup{id: 2, peers: urls, silence: silence, mark: Mark{2, 1}})
	works := sync.OnceFunc(func() { close(hung) })
	t.Cleanup(works) // before they are stopped
	require.Eventually(t, func() bool { return meets.Load() > 0 }, 10*time.Second, time.Millisecond)
	time.Sleep(2 * handshakeSilences * silence)
	require.EqualValues(t, 1, meets.Load())
	require.False(t, b.Connected(1))
	works()
	require.Eventually(t, func() bool { return a.Connected(2) && b.Connected(1) }, 20*time.Second, time.Millisecond)
}

// So it is with introductions.
func TestAnIntroductionThatCanNotBeNoted(t *testing.T) {
	asked, hung := 0, make(chan struct{})
	d := NewDoor(grpc.NewServer(), func(*peerpb.Introduction) (*peerpb.Introduction, error) {
		asked++
		<-hung
		return &peerpb.Introduction{}, nil
	})
	first := make(chan error, 1)
	go func() {
		_, err := d.Introduce(t.Context(), nil)
		first <- err
	}()
	require.Eventually(t, func() bool { return len(d.turn) == 1 }, 10*time.Second, time.Millisecond)
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := d.Introduce(brief, nil)
	require.ErrorIs(t, err, errLeft)
	close(hung)
	require.NoError(t, <-first)
	require.Equal(t, 1, asked)
	_, err = d.Introduce(t.Context(), nil)
	require.NoError(t, err)
}
