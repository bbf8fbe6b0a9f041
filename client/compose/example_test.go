package compose_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/process"
)

// The examples run on two clusters of one server each, which start when the first of
// them needs them.
var (
	regions = sync.OnceValue(startRegions)
	stop    []func()
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range stop {
		f()
	}
	os.Exit(code)
}

type region struct{ eu, us []string }

func startRegions() region {
	bin, err := process.Choose("stoa")
	if err != nil {
		log.Fatal(err)
	}
	start := func() []string {
		dir, err := process.TempDir("compose-examples")
		if err != nil {
			log.Fatal(err)
		}
		c, err := process.Start(context.Background(), process.Spec{Binary: bin, Dir: dir})
		if err != nil {
			log.Fatal(err)
		}
		stop = append(stop, func() {
			_ = c.Close()
			_ = os.RemoveAll(dir)
		})
		return c.Endpoints()
	}
	return region{start(), start()}
}

// connect composes two regions. In each, a member of the other's cluster would be
// nearby: then Near names it.
func connect() *compose.Client {
	at := regions()
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{
			"eu": {Endpoints: at.eu},
			"us": {Endpoints: at.us},
		},
		Routes: []compose.Route{
			{Prefix: "/eu/", Cluster: "eu"},
			{Prefix: "/us/", Cluster: "us"},
		},
		SpanRanges: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func Example() {
	ctx := context.Background()
	at := regions()
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{"eu": {Endpoints: at.eu}, "us": {Endpoints: at.us}},
		Routes: []compose.Route{
			{Prefix: "/eu/", Cluster: "eu"},
			{Prefix: "/us/", Cluster: "us", Strip: true}, // /us/db is /db there; see Route
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, key := range []string{"/eu/db", "/us/db"} {
		if _, err := c.Put(ctx, key, "10.0.1.7"); err != nil {
			log.Fatal(err)
		}
	}
	got, err := c.Get(ctx, "/us/db")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s = %s\n", got.Kvs[0].Key, got.Kvs[0].Value)
	_, err = c.Put(ctx, "/asia/db", "10.0.2.7")
	fmt.Println(errors.Is(err, compose.ErrNoRoute))
	// Output:
	// /us/db = 10.0.1.7
	// true
}

// A route needs no connection to be found.
func ExampleClient_Route() {
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{"eu": {Endpoints: []string{"eu:2379"}}, "us": {Endpoints: []string{"us:2379"}}},
		Routes:   []compose.Route{{Cluster: "eu"}, {Prefix: "/us", Cluster: "us", Strip: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, key := range []string{"/config", "/us/config"} {
		cluster, there, err := c.Route(key)
		fmt.Println(cluster, there, err)
	}
	// Output:
	// eu /config <nil>
	// us /config <nil>
}

// A key that refers to another region's keys is written after them, and is
// never seen before them.
func ExampleClient_PutAsync() {
	c := connect()
	defer c.Close()
	list := c.PutAsync("/us/acl/7", "alice,bob")
	uses := c.PutAsync("/eu/service/acl", "/us/acl/7") // sent when the first is answered
	for _, f := range []*client.Future[*clientv3.PutResponse]{list, uses} {
		if _, err := f.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(c.Stats().Updates)
	// Output: 2
}

// Reads that stay in a cluster are local; those of a synced client never are.
func ExampleClient_Synced() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	for range 3 {
		if _, err := c.Get(ctx, "/eu/config"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(c.Stats().Syncs) // the first, which went to another cluster than the one before
	for range 3 {
		if _, err := c.Synced().Get(ctx, "/eu/config"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(c.Stats().Syncs)
	// Output:
	// 1
	// 4
}

// A cluster that is cut off is named by the error.
func ExampleClusterError() {
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{"us": {Endpoints: []string{"127.0.0.1:1"}}}, // where nothing listens
		Routes:   []compose.Route{{Prefix: "/us/", Cluster: "us"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Put(context.Background(), "/us/x", "1")
	var failed *compose.ClusterError
	if errors.As(err, &failed) {
		fmt.Println(failed.Cluster, "does not answer; may have taken effect:", failed.Unknown)
	}
	// Output: us does not answer; may have taken effect: false
}

// A service that is registered in both regions, for as long as its session lasts.
func ExampleClient_Session() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s, err := c.Session(ctx, compose.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"/eu/services/web/1", "/us/services/web/1"} {
		if _, err := s.Put(ctx, key, "10.0.0.1:80", client.Ephemeral()); err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Close(ctx); err != nil { // or the process ends, and the TTL is over
		log.Fatal(err)
	}
	for _, prefix := range []string{"/eu/services/", "/us/services/"} {
		r, err := c.Get(ctx, prefix, clientv3.WithPrefix())
		fmt.Println(r.Count, err)
	}
	// Output:
	// 0 <nil>
	// 0 <nil>
}

// One feed of all regions' configurations, in an order that respects this
// client's requests.
func ExampleFeed() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	f := c.NewFeed()
	defer f.Close()
	if _, err := f.Watch(ctx, "/", clientv3.WithPrefix()); err != nil {
		log.Fatal(err)
	}
	c.PutAsync("/us/flags", "new")
	c.PutAsync("/eu/uses", "/us/flags")
	for range 2 {
		n, err := f.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if n.Err != nil {
			fmt.Println(n.Cluster, "is cut off:", n.Err) // the others go on
			continue
		}
		for _, e := range n.Events {
			fmt.Println(n.Cluster, string(e.Kv.Key))
		}
	}
	// Output:
	// us /us/flags
	// eu /eu/uses
}
