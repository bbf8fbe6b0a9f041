package compose

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/process"
)

// Local work over a composition beside the same work over what is below it.

func BenchmarkStoaPipelined(b *testing.B) {
	ctx := context.Background()
	at := serve(b, "stoa")
	c, err := client.New(client.Config{Endpoints: at.Endpoints()})
	require.NoError(b, err)
	defer c.Close()
	s, err := c.Session(ctx, client.WithLevel(client.Causal))
	require.NoError(b, err)
	composed := over(b, at)
	_, err = composed.Put(ctx, "/eu/a", "1")
	require.NoError(b, err)
	b.Run("session", func(b *testing.B) {
		pipeline(b, func() *client.Future[*clientv3.GetResponse] { return s.GetAsync("/eu/a") })
	})
	b.Run("composed", func(b *testing.B) {
		pipeline(b, func() *client.Future[*clientv3.GetResponse] { return composed.GetAsync("/eu/a") })
	})
}

func pipeline(b *testing.B, get func() *client.Future[*clientv3.GetResponse]) {
	b.ReportAllocs()
	const depth = 256
	var under []*client.Future[*clientv3.GetResponse]
	for range b.N {
		under = append(under, get())
		if len(under) == depth {
			for _, f := range under {
				_, err := f.Wait(context.Background())
				require.NoError(b, err)
			}
			under = under[:0]
		}
	}
	for _, f := range under {
		_, _ = f.Wait(context.Background())
	}
}

func BenchmarkEtcdGet(b *testing.B) {
	ctx := context.Background()
	at := serve(b, "etcd")
	c, err := clientv3.New(clientv3.Config{Endpoints: at.Endpoints()})
	require.NoError(b, err)
	defer c.Close()
	composed := over(b, at)
	_, err = composed.Put(ctx, "/eu/a", "1")
	require.NoError(b, err)
	b.Run("clientv3", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_, err := c.Get(ctx, "/eu/a", clientv3.WithSerializable())
			require.NoError(b, err)
		}
	})
	b.Run("composed", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_, err := composed.Get(ctx, "/eu/a")
			require.NoError(b, err)
		}
	})
}

func serve(b *testing.B, server string) *process.Cluster {
	b.Helper()
	bin, err := process.Choose(server)
	require.NoError(b, err)
	return process.StartT(b, process.Spec{Binary: bin})
}

// over is a composition of one cluster that is used and one that isn't there.
func over(b *testing.B, at *process.Cluster) *compose.Client {
	b.Helper()
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{"eu": {Endpoints: at.Endpoints()}, "us": {Endpoints: []string{"http://127.0.0.1:1"}}},
		Routes:   []compose.Route{{Prefix: "/eu/", Cluster: "eu"}, {Prefix: "/us/", Cluster: "us"}},
	})
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return c
}
