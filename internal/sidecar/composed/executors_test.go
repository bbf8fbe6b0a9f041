package composed

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/client/compose"
)

func TestExecutorsOfOtherClusters(t *testing.T) {
	cfg := compose.Config{
		Clusters: map[string]compose.Cluster{"eu": {}, "us": {}},
		Routes:   []compose.Route{{Prefix: "/all/", Cluster: "eu", Mirrors: []string{"us"}}},
	}
	for want, e := range map[string]Executors{
		"":                          {Mirrors: []string{"eu", "us"}, Commands: [][]string{{"eu", "us"}}},
		`no cluster "asia"`:         {Mirrors: []string{"asia"}},
		`no cluster "mars"`:         {Commands: [][]string{{"eu", "us"}, {"eu", "mars"}}},
		"none of the routes is mir": {Mirrors: []string{"eu"}},
	} {
		if err := e.check(cfg); want != "" {
			require.ErrorContains(t, err, want)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		trouble := seldom(func(error) { told++ })
		for range 25 {
			trouble(errors.New("broken"))
			time.Sleep(time.Second)
		}
		require.Equal(t, 3, told)
	})
}
