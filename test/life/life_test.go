package life

import (
	"context"
	"crypto/x509"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "order of the steps (0: by the clock)")
	stepsFlag = flag.Int("steps", 0, "steps of a life; 0: none is led")
	partsFlag = flag.Int("partitions", 4, "partitions at the beginning")
	planFlag  = flag.String("plan", "", "steps to do, in place of drawn ones")
	without   = flag.String("without", "", "steps not to draw")
	argsFlag  = flag.String("flags", "", "more flags of the servers")
)

const quota = 48 << 20

// life is a cluster and its operator.
type life struct {
	t        *testing.T
	ctx      context.Context
	rnd      *rand.Rand
	c        *process.Cluster
	ca       *process.Authority
	load     *load
	watchers []*watcher
	sidecar  *process.Server
	password string // of app
	noUsers  bool   // while authentication is disabled
	names    int    // of members, so far
	started  time.Time
	first    map[string]sizes // of each member, after its first check
	marks    map[string]int   // how much of each log has been looked at
}

func TestLife(t *testing.T) {
	plan := strings.FieldsFunc(*planFlag, func(r rune) bool { return r == ',' })
	if *stepsFlag == 0 && len(plan) == 0 {
		t.Skip("no -steps")
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for len(plan) < *stepsFlag {
		plan = append(plan, drawn(rnd)...)
	}
	if *stepsFlag > 0 {
		plan = plan[:*stepsFlag]
	}
	l := begin(t, rnd)
	l.check("beginning")
	for i, name := range plan {
		step := steps[name]
		require.NotNil(t, step, "no step is named %s", name)
		l.say("step %d: %s", i+1, name)
		begun := time.Now()
		l.abandon(name)
		step(l)
		l.say("  %s took %v", name, time.Since(begun).Round(time.Millisecond))
		l.check(name)
	}
}

// drawn are all steps in one order.
func drawn(rnd *rand.Rand) []string {
	var names []string
	for name := range steps {
		if !slices.Contains(strings.Split(*without, ","), name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rnd.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	return names
}

func (l *life) say(format string, args ...any) {
	l.t.Logf("%7.1fs "+format, append([]any{time.Since(l.started).Seconds()}, args...)...)
}

// begin starts a cluster with TLS and users, and the load.
func begin(t *testing.T, rnd *rand.Rand) *life {
	l := &life{t: t, ctx: t.Context(), rnd: rnd, ca: process.NewAuthority(t), password: "one", names: 3, started: time.Now(),
		first: map[string]sizes{}, marks: map[string]int{}}
	for _, user := range []string{"root", "app"} {
		l.ca.Issue(user, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	args := append(l.ca.Flags(""), l.ca.Flags("peer-")...)
	args = append(args, "--quota-backend-bytes="+fmt.Sprint(quota), "--bcrypt-cost=4", "--enable-pprof")
	args = append(args, strings.Fields(*argsFlag)...)
	l.c = process.StartT(t, process.Spec{Nodes: 3, Partitions: *partsFlag, TLS: true, PeerTLS: true, Metrics: true, Args: args, Timeout: 90 * time.Second})
	for _, command := range []string{"user add root:secret", "user grant-role root root", "role add app",
		"role grant-permission app readwrite /life/ --prefix", "user add app:one", "user grant-role app app", "auth enable"} {
		l.ctl(command)
	}
	l.load = newLoad()
	l.begins()
	return l
}

func (l *life) dir(name string) string {
	dir := filepath.Join(l.c.Spec.Dir, name)
	require.NoError(l.t, os.MkdirAll(dir, 0o755))
	return dir
}
