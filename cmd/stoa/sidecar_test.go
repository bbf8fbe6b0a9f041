package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestSidecarFlags(t *testing.T) {
	c, err := parseSidecar([]string{
		"--endpoints=https://a:1,https://b:2", "--listen-client-urls=http://127.0.0.1:7,unix:///run/stoa.sock",
		"--listen-metrics-urls=http://0.0.0.0:9", "--user=app:se:cret", "--drain-timeout=3s", "--namespace=/app/", "--cache=/a/,/b/", "--cache=/c/", "--cache-memory=1000",
	}, []string{"STOA_SIDECAR_DRAIN_TIMEOUT=9s", "STOA_SIDECAR_LOG_LEVEL=warn", "STOA_SIDECAR_PORT=tcp://10.0.0.1:1", "OTHER=1"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"https://a:1", "https://b:2"}, c.sidecar.Upstream.Endpoints)
	require.NotNil(t, c.sidecar.Upstream.TLS)
	require.Equal(t, "app", c.sidecar.Upstream.Username)
	require.Equal(t, "se:cret", c.sidecar.Upstream.Password)
	require.Equal(t, 3*time.Second, c.drain, "a flag has precedence")
	require.Equal(t, "warn", c.log.Level)
	require.Equal(t, "/app/", c.sidecar.Namespace)
	require.Equal(t, []string{"/a/", "/b/", "/c/"}, c.sidecar.Cache)
	require.EqualValues(t, 1000, c.sidecar.CacheMemory)
	require.Equal(t, 100_000, c.sidecar.MaxWatches)
	require.Len(t, c.listen, 2)
	require.Len(t, c.metrics, 1)
	require.Equal(t, []string{"STOA_SIDECAR_PORT is in the environment, but there is no such flag"}, c.notes)
}

// TestSidecarUser: the flags mean what they mean to etcdctl.
func TestSidecarUser(t *testing.T) {
	for _, tc := range []struct {
		args           []string
		name, password string
	}{
		{args: []string{"--user=a:b"}, name: "a", password: "b"},
		{args: []string{"--user=a:b:c"}, name: "a", password: "b:c"},
		{args: []string{"--user=a", "--password=c"}, name: "a", password: "c"},
		{args: []string{"--user=a:b", "--password=c"}, name: "a:b", password: "c"},
	} {
		c, err := parseSidecar(tc.args, nil, io.Discard)
		require.NoError(t, err)
		require.Equal(t, tc.name, c.sidecar.Upstream.Username, "%v", tc.args)
		require.Equal(t, tc.password, c.sidecar.Upstream.Password, "%v", tc.args)
	}
}

func TestSidecarRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		env  string
		want string
	}{
		{args: []string{"--endpoint=a:1"}, want: "flag provided but not defined: -endpoint"},
		{args: []string{"start"}, want: `"start" is not a flag`},
		{args: []string{"--endpoints="}, want: "--endpoints"},
		{args: []string{"--endpoints=a:1,,b:2"}, want: "an empty one"},
		{args: []string{"--endpoints=https://a:1,http://b:2"}, want: "either all of them"},
		{args: []string{"--endpoints=http://a:1", "--cacert=x"}, want: "need endpoints with https://"},
		{args: []string{"--cert=x"}, want: "belong together"},
		{args: []string{"--endpoints=https://a:1", "--cacert=/nowhere"}, want: "/nowhere"},
		{args: []string{"--listen-client-urls=https://127.0.0.1:1"}, want: "it begins with http:// or unix://"},
		{args: []string{"--listen-client-urls=127.0.0.1:1"}, want: "--listen-client-urls"},
		{args: []string{"--listen-client-urls="}, want: "is empty"},
		{args: []string{"--listen-client-urls=http://0.0.0.0:1"}, want: "--insecure-listen"},
		{args: []string{"--listen-client-urls=http://10.1.1.1:1"}, want: "--insecure-listen"},
		{args: []string{"--listen-metrics-urls=http://127.0.0.1"}, want: "http://ADDRESS:PORT"},
		{args: []string{"--user=app"}, want: "no password"},
		{args: []string{"--password=secret"}, want: "no --user"},
		{args: []string{"--drain-timeout=0s"}, want: "longer than 0"},
		{args: []string{"--dial-timeout=soon"}, want: "soon"},
		{args: []string{"--max-clients=3"}, want: "--max-clients is for --compose"},
		{args: []string{"--grpc-transport=quic"}, want: "it is grpc-go or own"},
		{args: []string{"--compose=c.yaml", "--endpoints=a:1"}, want: "--endpoints and --compose: the file of the composition says it"},
		{args: []string{"--compose=c.yaml", "--batching=false"}, want: "--batching has no effect with --compose"},
		{args: []string{"--compose=c.yaml"}, env: "STOA_SIDECAR_NAMESPACE=/a/", want: "--namespace has no effect"},
		{args: []string{"--run-mirrors=*"}, want: "need --compose"},
		{args: []string{"--run-commands=eu,us"}, want: "need --compose"},
		{args: []string{"--cache=/a/,,/b/"}, want: "an empty prefix"},
		{args: []string{"--cache=/a/", "--coalesce-watches=false"}, want: "--cache has no effect with --coalesce-watches=false"},
		{args: []string{"--compose=c.yaml", "--cache=/a/"}, want: "--cache has no effect"},
		{args: []string{"--when-away=retry"}, want: "it is fail or wait"},
		{args: []string{"--compose=c.yaml", "--when-away=wait"}, want: "--when-away has no effect"},
		{args: []string{"--log-format=xml"}, want: "json or console"},
		{env: "STOA_SIDECAR_DRAIN_TIMEOUT=soon", want: "STOA_SIDECAR_DRAIN_TIMEOUT in the environment"},
	} {
		_, err := parseSidecar(tc.args, []string{tc.env}, io.Discard)
		require.ErrorContains(t, err, tc.want, "%v %s", tc.args, tc.env)
	}
	c, err := parseSidecar([]string{"--compose=/nowhere/c.yaml"}, nil, io.Discard)
	require.NoError(t, err)
	_, err = c.server(zap.NewNop())
	require.ErrorContains(t, err, "/nowhere/c.yaml")

	c, err = parseSidecar([]string{"--listen-client-urls=http://0.0.0.0:1", "--insecure-listen"}, nil, io.Discard)
	require.NoError(t, err)
	require.Len(t, c.notes, 1, "it is logged")
}
