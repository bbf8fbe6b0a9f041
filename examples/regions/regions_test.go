package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// region is one process of the service, as README.md starts it.
type region struct {
	t   *testing.T
	url string
	cmd *exec.Cmd
}

func startRegion(t *testing.T, program, name string, clusters map[string]*process.Cluster) *region {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	require.NoError(t, err)
	cmd := exec.Command(program, "--region", name, "--name", name+"1", "--listen", addr, "--ttl", "2s",
		"--eu", strings.Join(clusters["eu"].Endpoints(), ","), "--us", strings.Join(clusters["us"].Endpoints(), ","))
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s says:\n%s", name, text)
		}
	})
	return &region{t: t, url: "http://" + addr, cmd: cmd}
}

func (r *region) ask(method, path, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (r *region) get(path string) string {
	r.t.Helper()
	status, text, err := r.ask("GET", path, "")
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, status, text)
	return text
}

func (r *region) put(path, value string) {
	r.t.Helper()
	status, text, err := r.ask("PUT", path, value)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, status, text)
}

func (r *region) soon(path, want string) {
	r.t.Helper()
	require.Eventuallyf(r.t, func() bool {
		_, text, err := r.ask("GET", path, "")
		return err == nil && text == want
	}, 20*time.Second, 50*time.Millisecond, "%s never becomes %q", path, want)
}

func (r *region) stats() (reads, updates, switches, syncs int) {
	r.t.Helper()
	_, err := fmt.Sscanf(r.get("/stats"), "reads %d, updates %d, switches %d, syncs %d", &reads, &updates, &switches, &syncs)
	require.NoError(r.t, err)
	return
}

// TestTwoRegions runs the service as README.md does: a cluster and a process for each
// of two regions.
func TestTwoRegions(t *testing.T) {
	program := filepath.Join(t.TempDir(), "regions")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build: most of it is compiled
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	clusters := map[string]*process.Cluster{
		"eu": process.StartT(t, process.Spec{Partitions: 2}),
		"us": process.StartT(t, process.Spec{Partitions: 2}),
	}
	eu, us := startRegion(t, program, "eu", clusters), startRegion(t, program, "us", clusters)
	eu.soon("/live", "eu/eu1\nus/us1\n")
	us.soon("/live", "eu/eu1\nus/us1\n")

	// A client that sees a version sees the configuration that was written
	// before it, though that is in another cluster.
	for version := 1; version <= 20; version++ {
		us.put("/config/db", strconv.Itoa(version))
		us.put("/global/version", strconv.Itoa(version))
		seen, err := strconv.Atoi(strings.TrimSpace(eu.get("/global/version")))
		require.NoError(t, err)
		db, err := strconv.Atoi(strings.TrimSpace(eu.get("/regions/us/db")))
		require.NoError(t, err)
		require.GreaterOrEqual(t, db, seen)
	}
	status, _, err := eu.ask("GET", "/config/db", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, status, "it is us's")

	// Transactions over both clusters keep the sum.
	eu.put("/capacity/eu", "10")
	us.put("/capacity/us", "5")
	for range 3 {
		status, text, err := us.ask("POST", "/capacity/eu/us?n=3", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, text)
	}
	require.Equal(t, "/eu/capacity/machines 1\n/us/capacity/machines 14\n", eu.get("/capacity"))
	status, _, err = us.ask("POST", "/capacity/eu/us?n=3", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, status)

	// Reads of a mirrored prefix are answered next to the reader.
	us.soon("/global/version", "20\n")

	// Reads within one cluster need no sync.
	eu.get("/global/version")
	reads, _, switches, syncs := eu.stats()
	for range 50 {
		eu.get("/global/version")
	}
	readsAfter, _, switchesAfter, syncsAfter := eu.stats()
	require.Equal(t, []int{reads + 50, switches, syncs}, []int{readsAfter, switchesAfter, syncsAfter})

	// The merged watch has it all, in the order of each cluster.
	require.Eventually(t, func() bool { return strings.Count(eu.get("/changes"), "\n") == 40 }, 10*time.Second, 50*time.Millisecond)
	for _, key := range []string{"/us/config/db", "/global/version"} {
		next := 1
		for line := range strings.Lines(eu.get("/changes")) {
			if value, ok := strings.CutPrefix(line, key+" = "); ok {
				require.Equal(t, fmt.Sprintln(next), value)
				next++
			}
		}
		require.Equal(t, 21, next)
	}

	// A process that has ended is soon removed from both lists.
	require.NoError(t, us.cmd.Process.Kill())
	eu.soon("/live", "eu/eu1\n")

	// Without the other region, requests to this one are served, and errors
	// name the other.
	require.NoError(t, clusters["us"].Close())
	for range 2 {
		began := time.Now()
		status, text, err := eu.ask("GET", "/regions/us/db", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusBadGateway, status, text)
		require.Contains(t, text, `cluster "us"`)
		require.Less(t, time.Since(began), 8*time.Second)
		eu.put("/global/version", "21")
		require.Equal(t, "21\n", eu.get("/global/version"))
		eu.put("/config/limit", "5")
		require.Equal(t, "5\n", eu.get("/config/limit"))
		time.Sleep(3 * time.Second) // the watches and the session have ended
	}

	// When it is back, everything works again, and no change was missed.
	require.NoError(t, clusters["us"].Start(t.Context()))
	us = startRegion(t, program, "us", clusters)
	eu.soon("/live", "eu/eu1\nus/us1\n")
	us.soon("/live", "eu/eu1\nus/us1\n")
	us.put("/config/db", "22")
	require.Eventually(t, func() bool { return strings.Contains(eu.get("/changes"), "/us/config/db = 22\n") }, 10*time.Second, 50*time.Millisecond)
	require.Equal(t, "22\n", eu.get("/regions/us/db"))
}
