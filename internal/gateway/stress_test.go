package gateway

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

var stress = flag.Duration("stress", time.Second, "how long the stress test runs")

// Clients of websockets that send well and badly, read or not, and leave in every way: the others are served
// meanwhile, and nothing of them stays.
func TestStressWebsockets(t *testing.T) {
	s, h := start(t, 1<<16)
	var open atomic.Int64
	url := listen(t, t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		h.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), *stress)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { // nothing else takes the puts
		for ctx.Err() == nil || open.Load() > 0 {
			select {
			case <-s.puts:
			case <-s.token:
			case <-time.After(time.Millisecond):
			}
		}
	})
	var strange atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			for rnd := rand.New(rand.NewPCG(uint64(i), 1)); ctx.Err() == nil; strange.Add(1) {
				misbehave(t, rnd, url)
			}
		})
	}
	served := 0
	for ; ctx.Err() == nil; served++ {
		conn := dial(t, url+"/v3/watch", nil)
		write(t, conn, `{"create_request": {"key": "YQ=="}}`)
		require.JSONEq(t, `{"result": {"watch_id": "1", "created": true}}`, next(t, conn))
		conn.Close()
	}
	wg.Wait()
	require.Zero(t, open.Load())
	require.Positive(t, served)
	t.Logf("%d connections beside %d well-behaved ones", strange.Load(), served)
}

// misbehave makes one connection.
func misbehave(t *testing.T, rnd *rand.Rand, url string) {
	path := []string{"/v3/watch", "/v3/kv/put", "/v3/kv/range", "/v3/none"}[rnd.IntN(4)]
	conn, _, err := websocket.DefaultDialer.Dial(url+path, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(rnd.IntN(20)) * time.Millisecond))
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	messages := []string{`{"key": "YQ=="}`, `{"create_request": {"key": "YQ=="}}`, `{"progress_request": {}}`, `{`, `]`, "", "\x00", `{"key": "` + strings.Repeat("A", 1<<17) + `"}`}
	for range rnd.IntN(6) {
		kind := websocket.TextMessage
		if rnd.IntN(4) == 0 {
			kind = websocket.BinaryMessage
		}
		if conn.WriteMessage(kind, []byte(messages[rnd.IntN(len(messages))])) != nil {
			break
		}
		if rnd.IntN(2) == 0 {
			_, _, _ = conn.ReadMessage()
		}
	}
	switch rnd.IntN(4) {
	case 0: // is gone
	case 1:
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	case 2: // in the middle of a frame
		_, _ = conn.NetConn().Write([]byte{0x81, 0xfe})
	case 3: // no frame at all
		_, _ = conn.NetConn().Write([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
	}
}
