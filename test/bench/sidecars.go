package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// sidecarsSuffix has clients connect to this many sidecars in front of the servers; CPU time
// is the servers' alone.
const (
	sidecarsSuffix = "+sidecars"
	sidecarCount   = 10
)

// startSidecars starts sidecars and returns their addresses.
func startSidecars(c *process.Cluster) (all []*process.Server, urls []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range sidecarCount {
		s, err := c.Sidecar(fmt.Sprintf("sidecar%d", i+1))
		if err != nil {
			return all, nil, err
		}
		if err := errors.Join(s.Start(), s.WaitReady(ctx)); err != nil {
			return all, nil, err
		}
		all, urls = append(all, s), append(urls, s.ClientURL)
	}
	return all, urls, nil
}
