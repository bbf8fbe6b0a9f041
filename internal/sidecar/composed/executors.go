package composed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client/commands/queue"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/worker"
)

// Executors are what a sidecar does for the composition besides serving clients. All sidecars with the
// same file may do the same: leases elect one of them for each mirror and each queue.
type Executors struct {
	// Mirrors are the clusters whose mirrors it keeps up to date.
	Mirrors []string
	// Commands are the queues whose commands it carries out, by the clusters of each.
	Commands [][]string
}

// check refuses names that the composition doesn't have.
func (e Executors) check(cfg compose.Config) error {
	for _, name := range slices.Concat(append(e.Commands, e.Mirrors)...) {
		if _, ok := cfg.Clusters[name]; !ok {
			return fmt.Errorf("there is no cluster %q in the composition", name)
		}
	}
	mirrored := func(r compose.Route) bool {
		return slices.ContainsFunc(r.Mirrors, func(name string) bool { return slices.Contains(e.Mirrors, name) })
	}
	if len(e.Mirrors) > 0 && !slices.ContainsFunc(cfg.Routes, mirrored) {
		return errors.New("none of the routes is mirrored in these clusters")
	}
	return nil
}

// persist is the pause after an error that an operator has to do something about. The sidecar goes on
// serving, and the executor needs no restart of it.
const persist = time.Minute

// executing are the executors at work.
type executing struct {
	stop context.CancelFunc
	work sync.WaitGroup
}

// execute begins the work.
func (e Executors) execute(c *compose.Client, registry prometheus.Registerer, lg *zap.Logger) *executing {
	ctx, stop := context.WithCancel(context.Background())
	x := &executing{stop: stop}
	run := func(what string, f func() error) {
		x.work.Go(func() {
			if err := f(); err != nil {
				lg.Error(what, zap.Error(err))
			}
		})
	}
	if len(e.Mirrors) > 0 {
		metrics := worker.NewMetrics(registry)
		run("no mirror is kept up to date", func() error {
			return c.Mirror(ctx, compose.MirrorOptions{Targets: e.Mirrors, Persist: persist, Observe: func(m compose.Mirror) worker.Observer {
				return metrics.Observe(m.Prefix, m.Home, m.Target, observeMirror(m, lg))
			}})
		})
	}
	if len(e.Commands) > 0 {
		metrics := queue.NewMetrics(registry)
		run("no commands are carried out", func() error {
			return c.CarryOut(ctx, compose.CarryOutOptions{Sets: e.Commands, Persist: persist, Observe: func(set []string) queue.Observer {
				return metrics.Observe(set, observeCommands(set, lg))
			}})
		})
	}
	return x
}

// wait ends the work, and waits until leases are given back.
func (x *executing) wait() {
	x.stop()
	x.work.Wait()
}

func observeMirror(m compose.Mirror, lg *zap.Logger) worker.Observer {
	lg = lg.With(zap.String("prefix", m.Prefix), zap.String("home", m.Home), zap.String("target", m.Target))
	trouble := seldom(func(err error) { lg.Warn("a mirror is not kept up to date: trying again", zap.Error(err)) })
	return worker.Observer{
		Elected: func(mark mirror.Mark, resumed bool) {
			lg.Info("keeping a mirror up to date", zap.Bool("copying", !resumed || mark.Phase == mirror.Copying), zap.Int64("revision", mark.Revision))
		},
		Failed: trouble, Retrying: trouble,
	}
}

func observeCommands(set []string, lg *zap.Logger) queue.Observer {
	lg = lg.With(zap.Strings("set", set))
	troubles := map[string]func(error){}
	for _, cluster := range append([]string{""}, set...) {
		troubles[cluster] = seldom(func(err error) {
			lg.Warn("commands are not carried out: trying again", zap.String("cluster", cluster), zap.Error(err))
		})
	}
	trouble := func(cluster string, err error) { troubles[cluster](err) }
	return queue.Observer{Elected: func() { lg.Info("carrying out commands") }, Failed: trouble, Retrying: trouble}
}

// troubleEach is the interval of lines about what doesn't work.
const troubleEach = 10 * time.Second

// seldom passes on the first error of each interval.
func seldom(tell func(error)) func(error) {
	var mu sync.Mutex
	var told time.Time
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(told) >= troubleEach {
			told = time.Now()
			tell(err)
		}
	}
}
