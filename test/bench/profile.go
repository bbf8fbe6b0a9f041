package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// With -profile, rounds of unary calls on stoa leave profiles of the leader behind, so
// that a figure can be explained: of CPU time while the round is measured, and of the
// heap and of what waits at its end. What they cost is in the figures.
const pprofFlag = "--enable-pprof"

// profiled does something while the leader's CPU time is profiled.
func (p *plan) profiled(c *process.Cluster, name string, do func() (sample, error)) (sample, error) {
	if p.profiles == "" || !c.Spec.Binary.Stoa {
		return do()
	}
	l, err := leader(c)
	if err != nil {
		return sample{}, err
	}
	if err := os.MkdirAll(p.profiles, 0o755); err != nil {
		return sample{}, fmt.Errorf("keeping profiles: %w", err)
	}
	cpu := make(chan error, 1)
	go func() {
		time.Sleep(p.warmup)
		seconds := max(int(p.length.Seconds()), 1)
		cpu <- fetch(fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", l.ClientURL, seconds), filepath.Join(p.profiles, name+".cpu.prof"))
	}()
	s, err := do()
	err = errors.Join(err, <-cpu)
	for _, kind := range []string{"heap", "allocs", "mutex", "block"} {
		err = errors.Join(err, fetch(l.ClientURL+"/debug/pprof/"+kind, filepath.Join(p.profiles, name+"."+kind+".prof")))
	}
	return s, err
}

func fetch(url, file string) error {
	resp, err := http.Get(url)
	if err != nil {
		return fmt.Errorf("fetching a profile: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fetching a profile: %s says %s", url, resp.Status)
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("keeping a profile: %w", err)
	}
	_, err = io.Copy(out, resp.Body)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("keeping a profile: %w", err)
	}
	return nil
}
