package life

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// downgrade is "Downgrade", and "Upgrade" afterwards.
func (l *life) downgrade() {
	earlier := os.Getenv("STOA_EARLIER")
	if earlier == "" {
		l.say("  no STOA_EARLIER")
		return
	}
	l.both("0.7.0")
	before := map[string]int{}
	for _, s := range l.c.Servers {
		before[s.Name] = strings.Count(s.LogTail(1<<30), "The server is ready to downgrade")
	}
	l.either("downgrade validate 0.6")
	l.either("downgrade enable 0.6")
	for _, s := range l.c.Servers {
		ok := eventually(time.Minute, func() bool {
			return strings.Count(s.LogTail(1<<30), "The server is ready to downgrade") > before[s.Name]
		})
		require.True(l.t, ok, "%s is not ready to downgrade", s.Name)
	}
	if l.rnd.IntN(3) == 0 {
		l.either("downgrade cancel")
		l.both("0.7.0")
		return
	}
	l.each(process.Binary{Path: earlier, Stoa: true})
	l.both("0.6.0")
	time.Sleep(2 * time.Second)
	l.check("downgrade, at 0.6")
	l.each(l.c.Spec.Binary)
	l.both("0.7.0")
}

func (l *life) each(bin process.Binary) {
	for _, i := range l.rnd.Perm(len(l.c.Servers)) {
		s := l.c.Servers[i]
		_, _, err := s.Stop()
		require.NoError(l.t, err)
		s.Use(bin)
		l.start(s)
		l.well()
	}
}

// both waits until all members say that the cluster has a version.
func (l *life) both(version string) {
	l.t.Helper()
	web := l.web()
	var cluster string
	for _, s := range l.c.Servers {
		ok := eventually(30*time.Second, func() bool {
			_, page := get(web, s.ClientURL+"/version")
			var v struct {
				Cluster string `json:"stoacluster"`
			}
			_ = json.Unmarshal([]byte(page), &v)
			cluster = v.Cluster
			return cluster == version
		})
		require.True(l.t, ok, "%s: %s, not %s", s.Name, cluster, version)
	}
}
