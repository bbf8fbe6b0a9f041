package sim

import (
	"errors"
	"time"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// resizer is as mad as the balancer: it has the number of partitions changed at any time, at any
// server. Nothing of it may show to clients.
func (c *cluster) madResizer() *meddler {
	return &meddler{
		c: c, name: "resizer", pace: 1500 * time.Millisecond,
		draw: func(*server) command.Command {
			n := pick(c.loop, []int{1, 2, 3, 4, 6})
			c.loop.printf("resizer: to %d", n)
			return command.Command{Kind: command.Resize, User: c.own(), Body: command.AppendResize(nil, n)}
		},
		done: func(err error) {
			switch {
			case err == nil:
				c.stats.Resizes++
			case errors.Is(err, fault.Internal):
				c.fail("resizer", "%v", err)
			}
		},
	}
}

// resize goes on with another number of partitions, as node's resize.go does: flush, bring the
// file into the next generation, and go on with the stores and the logs.
func (l *life) resize(old *core) {
	old.flush(func() {
		c := l.sv.c
		c.loop.printf("server %d goes on with %d partitions", l.sv.id, old.machine.Groups().Next)
		led := old.replica.Leader() == l.sv.id
		if old.flushing || !old.end() {
			return
		}
		err := error(nil)
		if l.forcing { // the next core has to look into the log
			err = old.wal.Close()
		} else {
			err = old.disk.drain()
		}
		if err != nil {
			l.fatal(err)
			return
		}
		l.succeed(old, led, !l.forcing)
	})
}
