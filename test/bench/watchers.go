package main

import (
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	watchPath    = "/etcdserverpb.Watch/Watch"
	watchStreams = 10 // to a connection
)

// watchLink is one connection with watch streams of etcd's API. Of what comes it only
// counts what was created and the events.
type watchLink struct {
	link            *link
	streams         []*stream
	created, events int
}

// openWatches opens links with so many watchers of what span says, in all, and returns
// when all are there.
func openWatches(address string, conns, watchers int, span func(i int) (key, end string)) ([]*watchLink, error) {
	links, errs := make([]*watchLink, conns), make([]error, conns)
	each(conns, func(i int) {
		links[i], errs[i] = openWatchLink(address)
		if errs[i] != nil {
			return
		}
		mine := 0
		for w := i; w < watchers && errs[i] == nil; w += conns {
			key, end := span(w)
			errs[i] = links[i].watch(mine%watchStreams, key, end)
			mine++
		}
		if errs[i] == nil {
			errs[i] = links[i].until(func() bool { return links[i].created >= mine })
		}
	})
	if err := errors.Join(errs...); err != nil {
		closeWatches(links)
		return nil, fmt.Errorf("opening watchers: %w", err)
	}
	return links, nil
}

func closeWatches(links []*watchLink) {
	for _, l := range links {
		if l != nil {
			l.link.close()
		}
	}
}

func openWatchLink(address string) (*watchLink, error) {
	l, err := openLink(address)
	if err != nil {
		return nil, err
	}
	w := &watchLink{link: l}
	for range watchStreams {
		s, err := l.open(watchPath)
		if err != nil {
			l.close()
			return nil, err
		}
		w.streams = append(w.streams, s)
	}
	return w, nil
}

func (w *watchLink) watch(stream int, key, end string) error {
	b, err := proto.Marshal(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end)}}})
	if err != nil {
		return err
	}
	return w.link.send(w.streams[stream], seal(append(make([]byte, prefix), b...)))
}

// until receives until something has come about.
func (w *watchLink) until(reached func() bool) error {
	deadline := time.Now().Add(2 * time.Minute)
	for !reached() {
		if !w.link.pending() {
			if err := w.link.flush(); err != nil {
				return err
			}
		}
		ready, err := w.link.await(deadline)
		if err != nil {
			return err
		}
		if !ready {
			return fmt.Errorf("%d watchers and %d events have come, not more", w.created, w.events)
		}
		s, err := w.link.receive()
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		if err := s.take(w.response); err != nil {
			return err
		}
		if s.ended != nil {
			return s.ended
		}
	}
	return nil
}

// The fields of a WatchResponse.
const (
	watchCreated  = 3
	watchCanceled = 4
	watchEvents   = 11
)

func (w *watchLink) response(b []byte) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(field, kind, b[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[n+size:]
		switch field {
		case watchCreated:
			w.created++
		case watchCanceled:
			return errors.New("the server has cancelled a watcher")
		case watchEvents:
			w.events++
		}
	}
	return nil
}

// deliver does something and measures until all links together have so many events more.
func deliver(links []*watchLink, events int, do func() error) (time.Duration, error) {
	began := time.Now()
	failed := make(chan error, 1)
	go func() { failed <- do() }()
	before, errs := make([]int, len(links)), make([]error, len(links))
	each(len(links), func(i int) {
		l := links[i]
		before[i] = l.events
		want := events / len(links)
		if i < events%len(links) {
			want++
		}
		errs[i] = l.until(func() bool { return l.events-before[i] >= want })
	})
	took := time.Since(began)
	return took, errors.Join(append(errs, <-failed)...)
}
