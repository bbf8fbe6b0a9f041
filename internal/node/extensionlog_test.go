package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const failing = `return {
  scope = { "/f/" },
  operations = { { op = "put", prefix = "/f/" } },
  put = function(r) local n = 0 for i = 1, 1000000 do n = n + 1 end end,
}`

func TestExtensionsAreLogged(t *testing.T) {
	var kept logged
	c := newCluster(t, 1, 2, kept.keep)
	c.ready()
	c.put(0, "/em/.limits", `{"failures": 2}`)
	rev := c.put(0, "/em/f", failing)
	require.Equal(t, map[string]any{"extension": "f", "revision": rev}, kept.line(t, 0, "extension registered"))
	for range 2 {
		_, err := c.nodes[0].Put(t.Context(), &pb.PutRequest{Key: []byte("/f/x")})
		require.Error(t, err)
	}
	disabled := kept.line(t, 0, "extension disabled")
	require.Equal(t, "f", disabled["extension"])
	require.Contains(t, disabled["reason"], "2 requests")
	c.put(0, "/em/f/state", "enabled")
	require.Equal(t, "f", kept.line(t, 0, "extension enabled")["extension"])
	c.put(0, "/em/f", failing) // as it was
	c.put(0, "/em/f", failing+" ")
	require.Equal(t, "f", kept.line(t, 0, "extension replaced")["extension"])
	_, err := c.nodes[0].DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/em/f")})
	require.NoError(t, err)
	require.Equal(t, "f", kept.line(t, 0, "extension removed")["extension"])
	require.Equal(t, 1, kept[0].FilterMessage("extension registered").Len())
	require.Equal(t, 1, kept[0].FilterMessage("extension disabled").Len())
}

// blocked is a log whose file can't be written to until it is released.
type blocked struct {
	zapcore.LevelEnabler
	release chan struct{}
}

func (b blocked) With([]zapcore.Field) zapcore.Core { return b }
func (b blocked) Sync() error                       { return nil }
func (b blocked) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Message == "extension registered" {
		return to.AddCore(e, b)
	}
	return to
}

func (b blocked) Write(zapcore.Entry, []zapcore.Field) error {
	<-b.release
	return nil
}

// Apply holds the stores' locks: it must not wait for the log.
func TestApplyDoesNotWaitForTheLog(t *testing.T) {
	b := blocked{zapcore.InfoLevel, make(chan struct{})}
	c := newCluster(t, 1, 2, func(c *Config) { c.Logger = zap.New(b) })
	defer close(b.release)
	c.ready()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := c.nodes[0].Put(ctx, &pb.PutRequest{Key: []byte("/em/f"), Value: []byte(failing)})
	require.NoError(t, err)
	_, err = c.nodes[0].Put(ctx, &pb.PutRequest{Key: []byte("k")})
	require.NoError(t, err)
}
