// Regions is a configuration service for applications in two regions, one process in
// each, over one composition of a cluster per region:
//
//	/global/…  configuration of all regions; lives in the cluster "eu", mirrored in "us"
//	/eu/…      configuration of the region eu, in the cluster "eu"
//	/us/…      configuration of the region us, in the cluster "us"
//
// The capacity of both regions, below /eu/capacity/ and /us/capacity/, is changed in transactions
// over both clusters.
//
// README.md beside it says how to run it on one machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/client/compose"
)

func main() {
	var o options
	flag.StringVar(&o.region, "region", "", "the region that this process serves: eu or us")
	flag.StringVar(&o.name, "name", "", "what the process calls itself among the live ones (default its address)")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8080", "where to serve HTTP")
	flag.DurationVar(&o.ttl, "ttl", 10*time.Second, "how long the process counts as live after its last sign of life")
	eu := flag.String("eu", "http://127.0.0.1:12379", "voting members of the cluster eu, separated by commas")
	us := flag.String("us", "http://127.0.0.1:22379", "voting members of the cluster us")
	euNear := flag.String("eu-near", "", "members of the cluster eu that are near to this process")
	usNear := flag.String("us-near", "", "members of the cluster us that are near to this process")
	flag.Parse()
	if o.name == "" {
		o.name = o.listen
	}
	o.clusters = map[string]compose.Cluster{
		"eu": {Endpoints: list(*eu), Near: list(*euNear)},
		"us": {Endpoints: list(*us), Near: list(*usNear)},
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	region, name, listen string
	ttl                  time.Duration
	clusters             map[string]compose.Cluster
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	if _, ok := o.clusters[o.region]; !ok {
		return fmt.Errorf("--region: %q is neither eu nor us", o.region)
	}
	c, err := compose.New(compose.Config{
		Clusters: o.clusters,
		Routes: []compose.Route{
			{Prefix: "/global/", Cluster: "eu", Mirrors: []string{"us"}},
			{Prefix: "/eu/", Cluster: "eu"},
			{Prefix: "/us/", Cluster: "us"},
			{Prefix: "/eu/capacity/", Cluster: "eu", Transactions: true},
			{Prefix: "/us/capacity/", Cluster: "us", Transactions: true},
		},
		Local:   o.region,
		Timeout: 2 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("composing the clusters: %w", err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(ctx)
	s := &service{region: o.region, client: c, changes: newChanges(c)}
	server := &http.Server{Addr: o.listen, Handler: s.handler()}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	var rest sync.WaitGroup
	rest.Go(func() { s.changes.follow(ctx) })
	for _, prefix := range []string{"/global/", "/eu/config/", "/us/config/"} {
		rest.Go(func() { s.changes.keep(ctx, prefix) })
	}
	rest.Go(func() { announce(ctx, c.Fork(), o) })
	if o.region == "us" { // the mirror is there
		rest.Go(func() {
			if err := c.Mirror(ctx, compose.MirrorOptions{}); err != nil {
				log.Print(err) // reads are then answered by the cluster eu
			}
		})
	}
	log.Printf("region %s is served on http://%s", o.region, o.listen)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	rest.Wait() // deletes the keys of this process at once
	s.changes.feed.Close()
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(ending))
}
