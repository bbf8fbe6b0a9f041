package operator

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stoa-kv/stoa/test/process"
)

// collector receives spans, as an OpenTelemetry collector does.
type collector struct {
	otlp.UnimplementedTraceServiceServer
	addr string

	traces int // that the test has begun
	mu     sync.Mutex
	spans  []span
}

// root is the client's span in each trace.
const root = "b7ad6b7169203331"

type span struct{ trace, id, parent, name, service, instance, partition string }

func newCollector(t *testing.T) *collector {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &collector{addr: l.Addr().String()}
	s := grpc.NewServer()
	otlp.RegisterTraceServiceServer(s, c)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return c
}

func (c *collector) Export(_ context.Context, r *otlp.ExportTraceServiceRequest) (*otlp.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		from := map[string]string{}
		for _, a := range of.GetResource().GetAttributes() {
			from[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				got := span{trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
					name: s.GetName(), service: from["service.name"], instance: from["service.instance.id"]}
				for _, a := range s.GetAttributes() {
					if a.GetKey() == "stoa.partition" {
						got.partition = fmt.Sprint(a.GetValue().GetIntValue())
					}
				}
				c.spans = append(c.spans, got)
			}
		}
	}
	return &otlp.ExportTraceServiceResponse{}, nil
}

// way is what a trace shows: each span as "server: path of names", and the partitions of those
// that have one.
func (c *collector) way(trace, root string) (lines, partitions map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]string{root: ""}
	parents := map[string]string{}
	for _, s := range c.spans {
		names[s.id], parents[s.id] = s.name, s.parent
	}
	lines, partitions = map[string]int{}, map[string]int{}
	for _, s := range c.spans {
		if s.trace != trace || s.service != "stoa" {
			continue
		}
		path := s.name
		for at := s.parent; at != root; at = parents[at] {
			if path = names[at] + "/" + path; names[at] == "" {
				break // its parent has not come yet
			}
		}
		lines[s.instance+": "+path]++
		if s.partition != "" {
			partitions[s.name+" "+s.partition]++
		}
	}
	return lines, partitions
}

// shows carries out a request, as part of a client's trace, until that shows what it should: the
// leader may change meanwhile, and a client that finds none asks again.
func (c *collector) shows(t *testing.T, of *process.Cluster, request func(ctx context.Context, leader, follower *process.Server) (want []string, err error)) (trace string) {
	t.Helper()
	var got, want map[string]int
	for range 10 {
		c.traces++
		trace = fmt.Sprintf("%032x", c.traces)
		leader, follower := roles(t, of)
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-"+root+"-01"), 20*time.Second)
		lines, err := request(ctx, leader, follower)
		cancel()
		if err != nil {
			continue
		}
		want = map[string]int{}
		for _, line := range lines {
			want[line]++
		}
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if got, _ = c.way(trace, root); maps.Equal(got, want) {
				return trace
			}
		}
	}
	require.Equal(t, want, got)
	return ""
}

// A trace shows a put's way through three servers, whichever of them it is sent to.
func TestTracesOfWrites(t *testing.T) {
	requireStoa(t)
	t.Parallel()
	out := newCollector(t)
	c := process.NewT(t, process.Spec{Nodes: 3, Partitions: 2, Env: []string{"OTEL_BSP_SCHEDULE_DELAY=50"}, Args: []string{
		"--enable-distributed-tracing", "--distributed-tracing-address=" + out.addr, "--distributed-tracing-service-name=stoa"}})
	for i, s := range c.Servers {
		c.Servers[i] = s.With("--distributed-tracing-instance-id=" + s.Name)
	}
	require.NoError(t, c.Start(t.Context()))
	put(t, c.Servers[0], "untraced", 2)
	of := func(s *process.Server, path string) string { return s.Name + ": etcdserverpb.KV/" + path }

	out.shows(t, c, func(ctx context.Context, leader, _ *process.Server) ([]string, error) {
		_, err := client(t, leader).Put(ctx, "/a/k", "v")
		return []string{of(leader, "Put"), of(leader, "Put/sequencer"), of(leader, "Put/log"), of(leader, "Put/replication"),
			of(leader, "Put/apply"), of(leader, "Put/answer")}, err
	})
	out.shows(t, c, func(ctx context.Context, leader, follower *process.Server) ([]string, error) {
		_, err := client(t, follower).Put(ctx, "/a/k", "v")
		return []string{of(follower, "Put"), of(follower, "Put/forward"), of(leader, "Put/forward/sequencer"), of(leader, "Put/forward/log"),
			of(leader, "Put/forward/replication"), of(leader, "Put/forward/apply"), of(follower, "Put/apply"), of(follower, "Put/answer")}, err
	})
	// Each partition logs what concerns it.
	trace := out.shows(t, c, func(ctx context.Context, leader, _ *process.Server) ([]string, error) {
		_, err := client(t, leader).Delete(ctx, "/", clientv3.WithPrefix())
		log, replication := of(leader, "DeleteRange/log"), of(leader, "DeleteRange/replication")
		return []string{of(leader, "DeleteRange"), of(leader, "DeleteRange/sequencer"), log, log, replication, replication,
			of(leader, "DeleteRange/apply"), of(leader, "DeleteRange/answer")}, err
	})
	_, partitions := out.way(trace, root)
	for _, line := range []string{"log 0", "log 1", "replication 0", "replication 1"} {
		require.Equal(t, 1, partitions[line], "%v", partitions)
	}
	out.shows(t, c, func(ctx context.Context, _, follower *process.Server) ([]string, error) {
		_, err := client(t, follower).Get(ctx, "/a/k")
		return []string{of(follower, "Range")}, err
	})

	// What no client has asked for is sampled at the rate, which is 0.
	out.mu.Lock()
	defer out.mu.Unlock()
	for _, s := range out.spans {
		require.True(t, strings.HasPrefix(s.trace, "0000000000000000"), "%+v", s)
	}
}

// roles returns the leader and a follower.
func roles(t *testing.T, c *process.Cluster) (leader, follower *process.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		leader, follower = nil, nil
		for _, s := range c.Servers {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			st, err := client(t, s).Status(ctx, s.ClientURL)
			cancel()
			switch {
			case err != nil:
				return false
			case st.Leader == st.Header.MemberId:
				leader = s
			default:
				follower = s
			}
		}
		return leader != nil && follower != nil
	}, time.Minute, 50*time.Millisecond)
	return leader, follower
}
