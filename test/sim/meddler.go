package sim

import (
	"cmp"
	"time"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// meddler asks any server, at any time, for commands that concern the whole cluster.
type meddler struct {
	c    *cluster
	name string
	pace time.Duration // the most between two commands; 0: 300 ms
	draw func(s *server) command.Command
	done func(err error)
}

func (m *meddler) think() {
	m.c.later(m.name, m.c.loop.between(5*time.Millisecond, cmp.Or(m.pace, 300*time.Millisecond)), m.ask)
}

func (m *meddler) ask() {
	c := m.c
	m.think()
	s := c.anyServer()
	if s.life == nil || s.life.paused > c.loop.now || s.life.core.joining() {
		return
	}
	cmd := m.draw(s)
	c.loop.printf("%s asks server %d: %v %x", m.name, s.id, cmd.Kind, cmd.Body)
	s.life.core.replica.Submit(&replica.Write{
		Command: cmd, Parts: s.life.core.machine.Placement().All(), System: true,
		Done: func(out replica.Outcome) {
			c.loop.printf("%s: %v at server %d: %v", m.name, cmd.Kind, s.id, out.Err)
			m.done(out.Err)
		},
	})
}

func (c *core) joining() bool { return len(c.machine.Members()) == 0 }
