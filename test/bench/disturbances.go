package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// disturbances are all that is large, in the order in which they are measured.
var disturbances = []disturbance{
	{name: "a compaction", prepare: (*staller).overwrite, do: onLeader(compact), once: true},
	{name: "a defragmentation of the leader", do: onLeader(defragment)},
	{name: "a client's snapshot", do: onLeader(func(ctx context.Context, a *admin) error {
		_, err := snapshot(ctx, a)
		return err
	})},
	{name: "a follower's snapshot", prepare: (*staller).leaveBehind, do: (*staller).bringBack, once: true},
	{name: "moves of half of the keys", onlyStoa: true, do: (*staller).moveSlots},
	{name: "ranges of all keys", do: onLeader(func(ctx context.Context, a *admin) error {
		_, err := rangeAll(ctx, a, "/bench/", "/bench0")
		return err
	})},
	{name: "puts of 1 MiB, 20 a second", do: (*staller).large},
}

// onLeader does something over a connection to the leader.
func onLeader(do func(context.Context, *admin) error) func(*staller) error {
	return func(s *staller) error {
		l, err := leader(s.cluster)
		if err != nil {
			return err
		}
		return once(l, do)
	}
}

// overwrite makes history that a compaction has to remove: one revision for each key.
func (s *staller) overwrite() error { return s.load.fill() }

// behind is the number of puts that a follower misses: more than stallArgs let
// a log hold.
const behind = 6000

// keptLog is longer than etcd keeps its whole log after a snapshot to a follower.
const keptLog = 35 * time.Second

// leaveBehind kills a follower, and writes until the log no longer holds the
// entries that it lacks.
func (s *staller) leaveBehind() error {
	time.Sleep(time.Until(s.sent.Add(keptLog)))
	away, err := follower(s.cluster)
	if err != nil {
		return err
	}
	if err := away.Kill(); err != nil {
		return err
	}
	l := *s.load
	l.addresses = nil
	for _, server := range s.cluster.Servers {
		if server.Running() {
			l.addresses = append(l.addresses, address(server))
		}
	}
	lead, err := leader(s.cluster)
	if err != nil {
		return err
	}
	from, err := revisionOf(lead)
	if err != nil {
		return err
	}
	// Few clients, so that there are many entries, few puts in each.
	r := l.start("put", 4)
	for deadline := time.Now().Add(time.Minute); err == nil; time.Sleep(100 * time.Millisecond) {
		var rev int64
		if rev, err = revisionOf(lead); err == nil && rev > from+behind {
			break
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("%d puts in a minute, when the log was to be filled", rev-from)
		}
	}
	return errors.Join(err, r.stop())
}

// bringBack starts the follower and waits until it has caught up.
func (s *staller) bringBack() error {
	before, err := snapshotsSent(s.cluster)
	if err != nil {
		return err
	}
	var away *process.Server
	for _, server := range s.cluster.Servers {
		if !server.Running() {
			away = server
		}
	}
	l, err := leader(s.cluster)
	if err != nil {
		return err
	}
	target, err := revisionOf(l)
	if err != nil {
		return err
	}
	if err := away.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		if rev, err := revisionOf(away); err == nil && rev >= target {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has not caught up within a minute; its log: %s", away.Name, away.LogTail(2000))
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.sent = time.Now()
	after, err := snapshotsSent(s.cluster)
	if err == nil && after == before {
		err = fmt.Errorf("%s caught up without a snapshot, which was to be measured", away.Name)
	}
	return err
}

// moverSource is an extension of all keys: registering it brings them together in one
// slot, removing it puts them back where they were.
const moverSource = `return { scope = { "/bench/" }, operations = { { op = "put", key = "/mover" } }, put = function() end }`

func (s *staller) moveSlots() error {
	return onLeader(func(ctx context.Context, a *admin) error {
		if _, err := a.kv.Put(ctx, &pb.PutRequest{Key: []byte("/em/mover"), Value: []byte(moverSource)}); err != nil {
			return fmt.Errorf("registering an extension: %w", err)
		}
		if err := s.arrived(ctx); err != nil {
			return err
		}
		if _, err := a.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("/em/mover")}); err != nil {
			return fmt.Errorf("removing the extension: %w", err)
		}
		return s.arrived(ctx)
	})(s)
}

// arrived waits until no server has moving keys any more.
func (s *staller) arrived(ctx context.Context) error {
	for _, server := range s.cluster.Servers {
		for {
			moving, err := server.KeysMoving(ctx)
			if err != nil {
				return err
			}
			if !moving {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// large puts 1 MiB and waits a little.
func (s *staller) large() error {
	value := bytes.Repeat([]byte{'x'}, 1<<20)
	return onLeader(func(ctx context.Context, a *admin) error {
		for range 20 {
			began := time.Now()
			if _, err := a.kv.Put(ctx, &pb.PutRequest{Key: []byte("/large"), Value: value}); err != nil {
				return fmt.Errorf("putting 1 MiB: %w", err)
			}
			time.Sleep(time.Until(began.Add(50 * time.Millisecond)))
		}
		return nil
	})(s)
}
