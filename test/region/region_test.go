package region

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func world(t *testing.T, oneWay time.Duration) *World {
	w, err := New(3, oneWay)
	if errors.Is(err, ErrNotPermitted) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// echo sends back, in a region, what comes; its address.
func echo(t *testing.T, at *Region) string {
	var l net.Listener
	require.NoError(t, at.Do(func() (err error) {
		l, err = net.Listen("tcp", at.Addr+":0")
		return err
	}))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	return l.Addr().String()
}

func TestLatencyBetweenRegions(t *testing.T) {
	const oneWay = 15 * time.Millisecond
	w := world(t, oneWay)
	addr := echo(t, w.Regions[0])
	for from, least := range []time.Duration{0, 2 * oneWay, 2 * oneWay} {
		c, err := w.Regions[from].Dial(soon(t), addr)
		require.NoError(t, err)
		defer c.Close()
		fastest := time.Hour
		for range 5 {
			begun := time.Now()
			_, err = c.Write([]byte("hello"))
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, 5))
			require.NoError(t, err)
			fastest = min(fastest, time.Since(begun))
		}
		require.GreaterOrEqual(t, fastest, least)
		require.Less(t, fastest, least+oneWay, "region %d", from+1)
	}
}

// More than a window, and more than a packet, arrives as it was sent.
func TestBulkDataArrivesInOrder(t *testing.T) {
	w := world(t, 2*time.Millisecond)
	c, err := w.Regions[1].Dial(soon(t), echo(t, w.Regions[0]))
	require.NoError(t, err)
	defer c.Close()
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i >> 8 * i)
	}
	go c.Write(sent)
	got := make([]byte, len(sent))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got))
}

// A region is isolated: regions reach each other only over their link; and this
// program stays in its own namespace.
func TestRegionsAreApart(t *testing.T) {
	w := world(t, time.Millisecond)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = w.Regions[0].Dial(t.Context(), l.Addr().String())
	require.Error(t, err)
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	c.Close()

	var out []byte
	require.NoError(t, w.Regions[1].Do(func() (err error) {
		out, err = exec.Command("cat", "/proc/self/net/dev").Output()
		return err
	}))
	require.Contains(t, string(out), deviceName)
}

// exchange sends five bytes to an echo and waits for them, at most so long.
func exchange(t *testing.T, c net.Conn, atMost time.Duration) error {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(atMost)))
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	return err
}

// A link that is cut in one direction lets nothing pass, the other direction included, as
// far as it needs answers; both go on when it has healed.
func TestALinkIsCut(t *testing.T) {
	w := world(t, time.Millisecond)
	c, err := w.Regions[1].Dial(soon(t), echo(t, w.Regions[0]))
	require.NoError(t, err)
	defer c.Close()
	for _, way := range [][2]int{{0, 1}, {1, 0}} {
		require.NoError(t, exchange(t, c, 5*time.Second))
		w.Link(way[0], way[1]).Set(Quality{Cut: true})
		require.ErrorIs(t, exchange(t, c, 300*time.Millisecond), os.ErrDeadlineExceeded)
		w.Heal()
		require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Second)))
		_, err = io.ReadFull(c, make([]byte, 5))
		require.NoError(t, err)
	}
}

// What a bad link does to packets, TCP makes up for.
func TestABadLinkDelaysAndLosesAndDuplicates(t *testing.T) {
	w := world(t, time.Millisecond)
	c, err := w.Regions[1].Dial(soon(t), echo(t, w.Regions[0]))
	require.NoError(t, err)
	defer c.Close()
	const delay = 60 * time.Millisecond
	w.Link(1, 0).Set(Quality{Delay: delay, Jitter: 10 * time.Millisecond, Loss: 0.2, Duplicate: 0.3})
	began := time.Now()
	for range 10 {
		require.NoError(t, exchange(t, c, 20*time.Second))
	}
	require.Greater(t, time.Since(began), 10*delay)
}
