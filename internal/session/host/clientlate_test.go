package host

import (
	"context"
	"io"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/internal/fault"
)

// What a client has sent over a connection that is broken can come when it has opened its session over another one: the
// stream that it began last goes on.
func TestStreamOfABrokenConnectionComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClientWorld(t, &clientPlan{Pause: 4})
		var links sync.WaitGroup
		w.rig.start()
		var ends []func()
		for _, s := range w.rig.servers {
			for _, l := range s.links {
				links.Go(l.carry)
			}
			ends = append(ends, s.serve(w.wires))
		}
		ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
		defer cancel()
		server := w.rig.servers[0]
		c := w.rig.client(t, w.wires, sdk.Config{})
		s, err := c.Session(ctx, sdk.WithTTL(calmTTL*time.Second), sdk.WithEndpoints(server.endpoint()))
		require.NoError(t, err)
		broken := w.wires.some(server.endpoint())
		broken.out.stall(5 * time.Second)
		server.process.Load().sessions.End(fault.Stopped)
		time.Sleep(100 * time.Millisecond) // the next stream is begun, over the same connection
		broken.in.end(0, 0, syscall.ECONNRESET)
		broken.out.end(everythingSent, 10*time.Second, io.EOF)
		if _, err := s.Put(ctx, "k", "v"); err != nil {
			t.Errorf("a put: %v", err)
		}
		time.Sleep(20 * time.Second)
		if err := s.Close(ctx); err != nil {
			t.Errorf("the session, in the end: %v", err)
		}
		_ = c.Close()
		for _, end := range ends {
			end()
		}
		w.rig.stop(&links)
	})
}
