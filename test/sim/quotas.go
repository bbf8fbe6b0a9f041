package sim

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

// limit sets and removes quotas of all kinds of prefixes, at random, also such as are below
// what is used, some of them with a rate. What clients ask is then refused at times.
func (k *keeper) limit() {
	c := k.c
	prefixes := []string{"/", "/a/", "/a/x/", "/b/", "s", "pair-", "pair-0"}
	switch {
	case c.has.space:
		prefixes = append(prefixes, "/x/", "/x/log/", "/x/q/", "/x/line/")
	case c.has.extensions:
		prefixes = prefixes[1:]
	}
	change := &stoapb.QuotaChange{
		Prefix:   []byte(pick(c.loop, prefixes)),
		MaxKeys:  int64(c.loop.rng.IntN(9)),
		MaxBytes: int64(c.loop.rng.IntN(300)),
		Remove:   c.loop.chance(20),
	}
	if c.loop.chance(2) && (!c.has.space || len(change.Prefix) > 1 && change.Prefix[1] != 'x') { // within the time that a user has, most rates are exceeded
		change.MaxRate = 1 + int64(c.loop.rng.IntN(20))
	}
	if s := c.anyServer(); s.life != nil {
		c.loop.printf("keeper limits at server %d: %v", s.id, change)
		s.life.write(command.Quota, change, auth.Own, true, func(_ proto.Message, err error) {
			if err == nil {
				c.stats.Quotas++
			}
		})
	}
	c.later("keeper limits", c.loop.between(20*time.Millisecond, 300*time.Millisecond), k.limit)
}

// noteQuota counts refusals.
func (c *cluster) noteQuota(err error) {
	switch {
	case !errors.Is(err, fault.QuotaExceeded):
	case overRate(err):
		c.stats.OverRate++
	default:
		c.stats.OverQuota++
	}
}

// compareQuotas: all servers count the same of each quota, and what its keys are; no more is
// granted than allowed (I6).
func (c *cluster) compareQuotas() {
	if c.failure != nil {
		return
	}
	counts := func(s *server) string { return fmt.Sprintf("%+v", s.life.core.machine.QuotasUsed()) }
	if !c.alike(counts) {
		for _, s := range c.alive() {
			if s.life != nil {
				c.loop.printf("server %d: quotas %s", s.id, counts(s))
			}
		}
		c.fail("quotas", "the servers have counted differently")
		return
	}
	for _, s := range c.alive() {
		for _, u := range s.life.core.machine.QuotasUsed() {
			c.recount(s.life.core, &u)
		}
	}
}

func (c *cluster) recount(core *core, u *apply.QuotaUsage) {
	var found, granted auth.Limits
	end := []byte(u.Prefix)
	end[len(end)-1]++
	for _, s := range core.stores {
		s.Sizes([]byte(u.Prefix), end, func(key []byte, size int) {
			if extension.Touches(key, nil) {
				return
			}
			found.Keys++
			found.Bytes += int64(size)
		})
	}
	for _, g := range u.Granted {
		granted.Keys += g.Keys
		granted.Bytes += g.Bytes
	}
	switch several := len(core.stores) > 1; {
	case found != u.Used:
		c.fail("quotas", "server %d has counted %+v for %v, which has %+v", core.l.sv.id, u.Used, &u.Quota, found)
	case several && (u.Keys > 0 && granted.Keys > u.Keys || u.Bytes > 0 && granted.Bytes > u.Bytes):
		c.fail("quotas", "server %d has granted %+v of %v, whose limits are %+v", core.l.sv.id, granted, &u.Quota, u.Limits)
	case several && (granted.Keys > 0 && u.Keys > 0 && found.Keys > u.Keys || granted.Bytes > 0 && u.Bytes > 0 && found.Bytes > u.Bytes):
		c.fail("quotas", "server %d has more than it may of %v: %+v, with %+v granted of %+v", core.l.sv.id, &u.Quota, found, granted, u.Limits)
	}
}
