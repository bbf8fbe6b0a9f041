package differential

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// throughSidecar puts a sidecar in front of the server under test. Sessions are open before
// the first request.
func throughSidecar(t *testing.T, shape shape, start func(string, process.Binary) *side) func(string, process.Binary) *side {
	return func(name string, bin process.Binary) *side {
		s := start(name, bin)
		if !bin.Stoa {
			return s
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var flags []string
		if shape.namespace != "" {
			flags = append(flags, "--namespace="+shape.namespace)
			putNeighbours(t, s, shape.namespace)
		}
		for _, prefix := range shape.cache {
			flags = append(flags, "--cache="+prefix)
		}
		between, err := s.cluster.Sidecar("sidecar", flags...)
		require.NoError(t, err)
		require.NoError(t, between.Start())
		require.NoError(t, between.WaitReady(ctx))
		require.NoError(t, s.through(between))
		require.Eventually(t, func() bool { return metric(between, "stoa_sidecar_sessions") > 0 }, time.Minute, time.Millisecond)
		for _, prefix := range shape.cache {
			require.Eventually(t, func() bool { return metric(between, `stoa_sidecar_cache_serving\{prefix="`+prefix+`"\}`) > 0 }, time.Minute, time.Millisecond)
		}
		return s
	}
}

// metric is one of a sidecar's, 0 if it can't be had.
func metric(s *process.Server, name string) float64 {
	answer, err := http.Get(s.ClientURL + "/metrics")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	found := regexp.MustCompile("(?m)^" + name + " (.*)$").FindSubmatch(body)
	if found == nil {
		return 0
	}
	value, _ := strconv.ParseFloat(string(found[1]), 64)
	return value
}

// TestScriptThroughSidecar and TestDrawnThroughSidecar compare etcd with a sidecar in front of
// stoa. The members' differences, which no table could allow for, are left out: there is one.
func TestScriptThroughSidecar(t *testing.T) {
	for _, parts := range sidecarParts(t) {
		t.Run(fmt.Sprint("P=", parts), func(t *testing.T) {
			s := shape{nodes: 1, parts: parts, sidecar: true}
			p := startPair(t, s)
			runScript(t, p, s)
			require.Greater(t, metric(p.sut.between, "stoa_sidecar_session_requests_total"), 50.0)
			require.Positive(t, metric(p.sut.between, "stoa_sidecar_watch_responses_total"))
		})
	}
}

func TestDrawnThroughSidecar(t *testing.T) {
	fewer(t)
	parts := sidecarParts(t)
	drawn(t, shape{nodes: 1, parts: parts[len(parts)-1], sidecar: true})
}

// TestCache: a sidecar that keeps most of the keys answers as etcd does, and it is the sidecar that answers.
func TestCache(t *testing.T) {
	sidecarParts(t)
	cached := []string{"/a/x/", "/b/", "c/d/", "/registry/pods/", "flat"}
	const linearizable = `stoa_sidecar_cache_reads_total\{level="linearizable"\}`
	t.Run("script", func(t *testing.T) {
		s := shape{nodes: 1, parts: 1, sidecar: true, cache: append(cached, "a", "k")}
		p := startPair(t, s)
		runScript(t, p, s)
		require.Positive(t, metric(p.sut.between, linearizable))
	})
	t.Run("drawn", func(t *testing.T) {
		fewer(t)
		p := drawn(t, shape{nodes: 1, parts: 3, sidecar: true, cache: cached})
		require.Greater(t, metric(p.sut.between, linearizable), 10.0)
	})
}

// fewer has rapid check less.
func fewer(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	asked := checks.Value.String()
	if asked == checks.DefValue {
		require.NoError(t, checks.Value.Set("10")) // the servers' part is TestDrawnOperations'
		t.Cleanup(func() { _ = checks.Value.Set(asked) })
	}
}

// neighbours are keys around a namespace, and the one that is its prefix.
func neighbours(namespace string) []string {
	last := len(namespace) - 1
	after := namespace[:last] + string(namespace[last]+1)
	return []string{"a", namespace[:last], namespace, after, after + "a", "zzzz"}
}

func putNeighbours(t *testing.T, s *side, namespace string) {
	for _, key := range neighbours(namespace) {
		require.Empty(t, s.call(0, &pb.PutRequest{Key: []byte(key), Value: []byte("neighbour")}).err)
	}
}

// TestNamespace: a sidecar with a namespace, among keys of others, is as an etcd with none but the
// namespace's keys, without the prefix; and the others' keys stay.
func TestNamespace(t *testing.T) {
	sidecarParts(t)
	s := shape{nodes: 1, parts: 3, sidecar: true, namespace: "/ns/"}
	t.Run("script", func(t *testing.T) {
		p := startPair(t, s)
		runScript(t, p, s)
		requireNeighbours(t, p.sut, s.namespace)
	})
	t.Run("drawn", func(t *testing.T) {
		fewer(t)
		requireNeighbours(t, drawn(t, s).sut, s.namespace)
	})
}

func requireNeighbours(t *testing.T, s *side, namespace string) {
	t.Helper()
	require.NoError(t, s.directly())
	for _, key := range neighbours(namespace) {
		got := s.call(0, &pb.RangeRequest{Key: []byte(key)})
		require.Empty(t, got.err)
		require.Len(t, got.msg.(*pb.RangeResponse).Kvs, 1, key)
		require.EqualValues(t, 1, got.msg.(*pb.RangeResponse).Kvs[0].Version, key)
	}
}

func sidecarParts(t *testing.T) []int {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	if !bin.Stoa {
		t.Skip("there are no sessions")
	}
	return []int{1, 3}
}
