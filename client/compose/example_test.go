package compose_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

// Two regions, each with a cluster of its own and a member of the other's nearby.
func example() *compose.Client {
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{
			"eu": {Endpoints: []string{"eu1:2379", "eu2:2379", "eu3:2379"}},
			"us": {Endpoints: []string{"us1:2379", "us2:2379", "us3:2379"}, Near: []string{"us-in-eu:2379"}},
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

// What refers to another region's keys is written behind them, and read as such.
func ExampleClient_PutAsync() {
	c := example()
	defer c.Close()
	list := c.PutAsync("/us/acl/7", "alice,bob")
	uses := c.PutAsync("/eu/service/acl", "/us/acl/7") // waits until the first is answered
	for _, f := range []*client.Future[*clientv3.PutResponse]{list, uses} {
		if _, err := f.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
}

// A cluster that is cut off says who it is.
func ExampleClusterError() {
	c := example()
	defer c.Close()
	_, err := c.Put(context.Background(), "/us/x", "1")
	var failed *compose.ClusterError
	if errors.As(err, &failed) {
		fmt.Println(failed.Cluster, "does not answer; may have taken effect:", failed.Unknown)
	}
}

// A service that is registered in both regions, or in none.
func ExampleClient_Session() {
	ctx := context.Background()
	c := example()
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
	<-s.Done()
	fmt.Println(s.Err())
}

// One feed of all regions' configurations.
func ExampleFeed() {
	ctx := context.Background()
	c := example()
	defer c.Close()
	f := c.NewFeed()
	defer f.Close()
	if _, err := f.Watch(ctx, "/", clientv3.WithPrefix()); err != nil {
		log.Fatal(err)
	}
	for {
		n, err := f.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if n.Err != nil {
			fmt.Println(n.Cluster, "is cut off:", n.Err) // the others go on
			continue
		}
		for _, e := range n.Events {
			fmt.Println(n.Cluster, n.Revision, string(e.Kv.Key))
		}
	}
}
