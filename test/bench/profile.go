package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// With -profile, rounds of unary calls and sessions on stoa leave profiles of the leader
// behind, so that a figure can be explained: of CPU time while the round is measured, and
// of the heap and of what waits at its end. So do stalls, and scale those of the heap.
// What they cost is in the figures.
const pprofFlag = "--enable-pprof"

// profiled does something while the leader's CPU time is profiled.
func (p *plan) profiled(c *process.Cluster, name string, do func() (sample, error)) (sample, error) {
	kept := p.keep(c, name, max(int(p.length.Seconds()), 1))
	s, err := do()
	if err := errors.Join(err, <-kept); err != nil || p.profiles == "" || !c.Spec.Binary.Stoa {
		return s, err
	}
	l, err := leader(c)
	if err != nil {
		return s, err
	}
	return s, p.look(l, name, "heap", "allocs", "mutex", "block")
}

// keep profiles the CPU time of stoa's servers for so many seconds, once what is now begun has
// warmed up: of the leader, and of the others with a number behind the name.
func (p *plan) keep(c *process.Cluster, name string, seconds int) <-chan error {
	done := make(chan error, 1)
	if p.profiles == "" || !c.Spec.Binary.Stoa {
		done <- nil
		return done
	}
	go func() {
		time.Sleep(p.warmup)
		l, err := leader(c)
		if err != nil {
			done <- err
			return
		}
		if err := os.MkdirAll(p.profiles, 0o755); err != nil {
			done <- fmt.Errorf("keeping profiles: %w", err)
			return
		}
		errs := make([]error, len(c.Servers))
		each(len(c.Servers), func(i int) {
			of := name
			if c.Servers[i] != l {
				of = fmt.Sprintf("%s-%d", name, i+1)
			}
			errs[i] = fetch(fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", c.Servers[i].ClientURL, seconds), p.profileOf(of, "cpu"))
		})
		done <- errors.Join(errs...)
	}()
	return done
}

// look keeps profiles of how a server is now.
func (p *plan) look(s *process.Server, name string, kinds ...string) (err error) {
	if p.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(p.profiles, 0o755); err != nil {
		return fmt.Errorf("keeping profiles: %w", err)
	}
	for _, kind := range kinds {
		err = errors.Join(err, fetch(s.ClientURL+"/debug/pprof/"+kind, p.profileOf(name, kind)))
	}
	return err
}

// profileOf is the file for a profile of something.
func (p *plan) profileOf(name, kind string) string {
	return filepath.Join(p.profiles, strings.NewReplacer(", ", "-", " ", "-", "/", "-", "'", "").Replace(name)+"."+kind+".prof")
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
