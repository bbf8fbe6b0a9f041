package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBenchUnary(t *testing.T) {
	_, addr := startFake(t)
	env := []string{"STOACTL_ENDPOINTS=" + addr}
	code, out, errs := call("", env, strings.Fields("bench --unary --clients 2 --depth 3 --duration 200ms -w json")...)
	require.Zero(t, code, errs)
	require.Empty(t, errs, "no progress without a terminal")
	var results []benchResult
	require.NoError(t, json.Unmarshal([]byte(out), &results))
	require.Len(t, results, 2)
	for i, op := range benchOps {
		r := results[i]
		require.Equal(t, op, r.Op)
		require.Equal(t, "unary", r.Way)
		require.Positive(t, r.Count)
		require.Positive(t, r.Rate)
		require.LessOrEqual(t, r.P50, r.P99)
		require.LessOrEqual(t, r.P99, r.Most)
	}
	code, out, _ = call("", env, strings.Fields("bench --unary --clients 1 --depth 1 --ops get --duration 50ms")...)
	require.Zero(t, code)
	require.Regexp(t, `(?m)^op +way +clients +depth +ops/s +p50 +p99 +max\nget +unary +1 +1 +[0-9]+ +[0-9.]+[mµ]s`, out)
}

func TestBenchRefuses(t *testing.T) {
	for args, says := range map[string]string{
		"bench --ops put,del":   `"del" is none of put, get`,
		"bench --clients 0":     "above 0",
		"bench --level some":    `"some" is none of strict, causal, fast`,
		"bench --duration -1s":  "above 0",
		"bench somewhere":       "takes no arguments",
		"bench --value notmany": "invalid argument",
	} {
		code, _, errs := call("", nil, strings.Fields(args)...)
		require.NotZero(t, code, args)
		require.Contains(t, errs, says, args)
	}
}

func TestProgress(t *testing.T) {
	require.Equal(t, "put [███████████████···············]  50 %       200/s", progressBar("put", time.Second, 2*time.Second, 200))
	require.Contains(t, progressBar("put", 3*time.Second, 2*time.Second, 0), "100 %")
	var w bytes.Buffer
	var n atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	showProgress(ctx, &w, "get", time.Second, &n)
	require.Contains(t, w.String(), "\rget [")
	require.True(t, strings.HasSuffix(w.String(), " \r"), "the bar is wiped out")
}
