package main

import (
	"context"
	"log"
	"time"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

func livePrefix(region string) string { return "/" + region + "/live/" }

// announce registers this process in the clusters of both regions, until ctx
// ends. The keys belong to one session over both clusters: a process without
// contact to one of them for the ttl is removed from both lists, and registers
// again in both.
func announce(ctx context.Context, c *compose.Client, o options) {
	defer c.Close()
	for ctx.Err() == nil {
		session, err := c.Session(ctx, compose.WithTTL(o.ttl))
		if err == nil {
			err = hold(ctx, session, o)
		}
		if err != nil && ctx.Err() == nil {
			log.Printf("not live for others: %v", err)
		}
		pause(ctx, again)
	}
}

// hold keeps the process registered until its session or ctx ends.
func hold(ctx context.Context, s *compose.Session, o options) error {
	err := func() error {
		for region := range o.clusters {
			if _, err := s.Put(ctx, livePrefix(region)+o.region+"/"+o.name, o.listen, client.Ephemeral()); err != nil {
				return err
			}
		}
		select {
		case <-s.Done():
			return s.Err()
		case <-ctx.Done():
			return nil
		}
	}()
	ending, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if closing := s.Close(ending); err == nil {
		err = closing
	}
	return err
}
