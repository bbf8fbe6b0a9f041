package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A client is told of a small map at once, and of changes of a large one now and then. The
// message is the same for all sessions.
func TestLargeMapsAreToldNowAndThen(t *testing.T) {
	w := newWorld(t, 1, Config{RequestTimeout: time.Second})
	sessions := w.servers[0].sessions
	session := func() *driver {
		d := &driver{}
		d.init(&Session{of: sessions}, &stoapb.OpenSession{PartitionMap: true}, nil)
		return d
	}
	one, other := session(), session()
	rules := 0
	grown := func(n int) *placement.Map {
		var list []placement.Rule
		for i := range rules + n {
			list = append(list, placement.Rule{Key: fmt.Sprintf("/%d/", i)})
		}
		rules += n
		return placement.New(partitions).WithRules(list)
	}
	for range 3 {
		m := grown(1)
		require.Len(t, one.tell(m).Rules, rules)
		require.Nil(t, one.tell(m), "it knows")
	}
	m := grown(largeMap)
	require.Nil(t, one.tell(m))
	w.now = w.now.Add(mapPause)
	told := one.tell(m)
	require.Len(t, told.Rules, rules)
	require.Same(t, told, other.tell(m), "not made again")
	m = grown(1)
	require.Nil(t, one.tell(m))
	w.now = w.now.Add(mapPause)
	require.Len(t, one.tell(m).Rules, rules)
}
