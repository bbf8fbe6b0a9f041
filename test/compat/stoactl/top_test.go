package stoactl

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// monitored is the part of top's JSON that the test looks at.
type monitored struct {
	Seconds float64
	Watches int64
	Servers []struct {
		State string
		Puts  *float64 `json:"puts_per_second"`
	}
	Partitions []struct{ Slots int }
	Slots      []struct{ Slot int }
	Prefixes   []struct{ Prefix string }
	Extensions []struct {
		Calls *float64 `json:"calls_per_second"`
	}
}

// complete reports whether this is what top shows of the loaded cluster of TestTop.
func (m *monitored) complete() bool {
	if len(m.Servers) != 3 || len(m.Partitions) != 2 || len(m.Slots) == 0 || len(m.Extensions) != 1 || m.Extensions[0].Calls == nil {
		return false
	}
	puts := 0.0
	for _, x := range m.Servers {
		if x.State == "unknown" || x.Puts == nil {
			return false
		}
		puts += *x.Puts
	}
	named := false
	for _, p := range m.Prefixes {
		named = named || p.Prefix == "/busy/dir/"
	}
	return m.Servers[0].State == "leader" && puts > 0 && m.Seconds > 0 && m.Watches == 1 && named &&
		m.Partitions[0].Slots+m.Partitions[1].Slots == 1024
}

// Top shows a loaded cluster of three servers: what they do, what keeps them busy, and that one of
// them has gone.
func TestTop(t *testing.T) {
	t.Parallel()
	stoactl := build(t)
	cluster := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	s := cluster.Servers[0]
	run := func(args string) (string, error) {
		out, err := exec.Command(stoactl, append(strings.Fields(args), "--client-id=loader", "--endpoints="+s.ClientURL)...).CombinedOutput()
		return string(out), err
	}
	out, err := run("extension register counter ../../../extensions/counter.lua")
	require.NoError(t, err, out)
	defer burden(t, s)()
	// A server that takes long to answer, on a loaded machine, counts as unknown.
	until := func(args string, shown func(out string) bool) {
		t.Helper()
		var out string
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
			var err error
			if out, err = run(args); err == nil && shown(out) {
				return
			}
		}
		t.Fatalf("%s shows at last:\n%s", args, out)
	}
	until("top -n 1 -w json --interval 500ms", func(out string) bool {
		var m monitored
		return json.Unmarshal([]byte(out), &m) == nil && m.complete()
	})

	gone := cluster.Servers[2]
	require.NoError(t, gone.Kill())
	unknown := regexp.MustCompile(`(?m)^` + gone.Name + ` +unknown +.*refused`)
	enabled := regexp.MustCompile(`(?m)^counter +enabled `)
	until("top -n 2 --interval 100ms", func(out string) bool {
		require.NotContains(t, out, "\x1b")
		return strings.Count(out, "SERVER ") == 2 && unknown.MatchString(out) && enabled.MatchString(out)
	})
}

// burden writes keys of a directory and watches them, until the test ends.
func burden(t *testing.T, s *process.Server) (end func()) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, Logger: zap.NewNop()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	watch := c.Watch(ctx, "/busy/", clientv3.WithPrefix())
	running.Go(func() {
		for range watch { // takes events
		}
	})
	for w := range 4 {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = c.Put(ctx, fmt.Sprintf("/busy/dir/%d-%d", w, i%100), "v") // fails while there is no leader
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
		c.Close()
	}
}
