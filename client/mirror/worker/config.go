package worker

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// Config is that of a worker. Home, Target and Keys are needed.
type Config struct {
	Home, Target *clientv3.Client
	Keys         cluster.Mirrored
	// Overwrite accepts a target in which there are keys of the prefix, and no mark or one
	// of other keys: those that differ from home's are replaced or deleted.
	Overwrite bool
	// MaxTxnOps is the target's --max-txn-ops: 128 if 0.
	MaxTxnOps int
	// Interval bounds the time for which the mark stays behind revisions of home at which no
	// key of the prefix has changed: 100 ms if 0. It costs one read of home each time, and
	// one write of the target if home has changed.
	Interval time.Duration
	// TTL is the time after which another worker is elected if this one dies, or home doesn't answer it: whole
	// seconds, 10 s if 0.
	TTL time.Duration
	// Persist is the time after which a worker begins again that has ended with an error for an
	// operator; until then another one may be elected. 0: Run returns the error.
	Persist  time.Duration
	Observer Observer
}

// Observer is told how a worker goes on, from one goroutine at a time unless said otherwise.
// Functions may be nil, and must not block.
type Observer struct {
	// Waiting: another worker may be elected.
	Waiting func()
	// Elected: it is this one. The mark is the target's; resumed is false if there was none.
	Elected func(mark mirror.Mark, resumed bool)
	// Copied: so many of about total keys of home are compared, and so many were written or
	// deleted. Often.
	Copied func(keys, total, written int64)
	// Following is called at each interval.
	Following func(Status)
	// Failed: the worker has lost its place, or failed, and tries again.
	Failed func(error)
	// Retrying: a request failed and is sent again. From several goroutines.
	Retrying func(error)
}

// Status is how far a mirror is.
type Status struct {
	Phase    mirror.Phase
	Revision int64         // of home, that the target has
	Behind   int64         // revisions of home that it doesn't have
	Lag      time.Duration // since when the target lacks one of home's revisions
}

const (
	defaultInterval = 100 * time.Millisecond
	defaultTTL      = 10 * time.Second
	// checkEach is the interval at which a worker that writes nothing looks whether it is
	// still the one that may.
	checkEach = time.Second
	// inFlight is the number of transactions at a time while it copies.
	inFlight = 8
)

func (c Config) withDefaults() Config {
	if c.Interval <= 0 {
		c.Interval = defaultInterval
	}
	if c.TTL < time.Second {
		c.TTL = defaultTTL
	}
	return c
}

func (c *Config) limits() mirror.Limits {
	l := cluster.DefaultLimits
	if c.MaxTxnOps > 0 {
		l.Ops = max(c.MaxTxnOps-cluster.MarkOps, 1)
	}
	return l
}
