package rpc

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
)

func TestSlowCallsAreLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	_, c := client(t, Options{WarningUnary: 1, Logger: zap.New(core)})
	ctx := testContext(t)
	_, err := c.Put(ctx, "k", "secret")
	require.NoError(t, err)
	_, err = c.Get(ctx, "k")
	require.NoError(t, err)
	slow := logs.FilterMessage("request stats").All()
	require.Len(t, slow, 2)
	put, get := slow[0].ContextMap(), slow[1].ContextMap()
	require.Equal(t, "/etcdserverpb.KV/Put", put["response type"])
	require.EqualValues(t, 1, put["request count"])
	require.Contains(t, put["request content"], `key:"k"`)
	require.NotContains(t, fmt.Sprint(put), "secret")
	require.Equal(t, "/etcdserverpb.KV/Range", get["response type"])
	require.EqualValues(t, 1, get["response count"])
	require.Positive(t, get["time spent"])
	for _, key := range []string{"start time", "remote", "request size", "response size"} {
		require.Contains(t, put, key)
	}
}

func TestCallsThatAreNotSlowAreNotLogged(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		core, logs := observer.New(zap.WarnLevel)
		_, c := client(t, Options{WarningUnary: limit, Logger: zap.New(core)})
		_, err := c.Put(testContext(t), "k", "v")
		require.NoError(t, err)
		require.Empty(t, logs.All())
	}
}

// The version is a client's text: no number of them fills the server's memory.
func TestVersionsOfClientsAreBounded(t *testing.T) {
	calls := newCalls(nil, false, nil)
	for i := range 2 * maxVersions {
		calls.unary.count([]string{fmt.Sprintf("9.%d", i)})
	}
	calls.unary.count(nil)
	shown := make(chan prometheus.Metric, 3*maxVersions)
	calls.unary.of.Collect(shown)
	require.LessOrEqual(t, len(shown), maxVersions+1)
	require.Greater(t, len(shown), maxVersions-2)
}

// BenchmarkAddedToACall is the measuring of a unary call, as wrapUnary does it, for a client
// that tells its version, as etcd's do, and for one that doesn't.
func BenchmarkAddedToACall(b *testing.B) {
	md := metadata.Pairs(":authority", "127.0.0.1:2379", "content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", "grpc-accept-encoding", "gzip")
	for name, md := range map[string]metadata.MD{
		"version=none": md, "version=3.7": metadata.Join(md, metadata.Pairs(rpctypes.MetadataClientAPIVersionKey, "3.7.3")),
	} {
		b.Run(name, func(b *testing.B) {
			calls := newCalls(nil, false, nil)
			c := calls.of("s", "m", "unary")
			s := &Server{since: time.Now()}
			info := &tap.Info{FullMethodName: c.name, Header: md}
			for b.Loop() {
				_, _ = calls.arrived(b.Context(), info)
				began := s.clock()
				in := captures.Get().(*capture)
				n := &c.counts[in.stripe]
				n.received.Add(1)
				n.sent.Add(1)
				_ = s.clock() - began
				in.release()
			}
		})
	}
}
