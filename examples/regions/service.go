package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// service is the configuration service of one region.
type service struct {
	region  string
	client  *compose.Client // its requests have one order, over both clusters
	changes *changes
}

// handler is the service for applications:
//
//	GET, PUT /global/KEY     configuration of all regions
//	GET, PUT /config/KEY     configuration of this region
//	GET /regions/REGION/KEY  that of any region
//	GET, PUT /capacity…      machines of both regions; PUT /capacity/REGION sets those of one
//	POST /capacity/FROM/TO   moves n of them, in one transaction over both clusters
//	GET /live                live processes of all regions
//	GET /changes             what has changed since the process started, in order
//	GET /stats               how many requests were made and how many syncs they took
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	global := func(r *http.Request) string { return "/global/" + r.PathValue("key") }
	own := func(r *http.Request) string { return "/" + s.region + "/config/" + r.PathValue("key") }
	mux.HandleFunc("GET /global/{key}", s.get(global))
	mux.HandleFunc("PUT /global/{key}", s.put(global))
	mux.HandleFunc("GET /config/{key}", s.get(own))
	mux.HandleFunc("PUT /config/{key}", s.put(own))
	mux.HandleFunc("GET /regions/{region}/{key}", s.get(func(r *http.Request) string {
		return "/" + r.PathValue("region") + "/config/" + r.PathValue("key")
	}))
	mux.HandleFunc("GET /capacity", s.capacity)
	mux.HandleFunc("PUT /capacity/{region}", s.put(func(r *http.Request) string { return capacityKey(r.PathValue("region")) }))
	mux.HandleFunc("POST /capacity/{from}/{to}", s.moveCapacity)
	mux.HandleFunc("GET /live", s.live)
	mux.HandleFunc("GET /changes", func(w http.ResponseWriter, _ *http.Request) {
		s.changes.mu.Lock()
		defer s.changes.mu.Unlock()
		for _, line := range s.changes.lines {
			fmt.Fprintln(w, line)
		}
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		st := s.client.Stats()
		fmt.Fprintf(w, "reads %d, updates %d, switches %d, syncs %d\n", st.Reads, st.Updates, st.Switches, st.Syncs)
	})
	return mux
}

func (s *service) get(key func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := s.client.Get(r.Context(), key(r))
		switch {
		case err != nil:
			fail(w, err)
		case len(found.Kvs) == 0:
			http.Error(w, "no such key", http.StatusNotFound)
		default:
			fmt.Fprintf(w, "%s\n", found.Kvs[0].Value)
		}
	}
}

func (s *service) put(key func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, err := s.client.Put(r.Context(), key(r), string(value)); err != nil {
			fail(w, err)
		}
	}
}

// live lists the processes of all regions, as registered in this one's cluster.
func (s *service) live(w http.ResponseWriter, r *http.Request) {
	prefix := livePrefix(s.region)
	found, err := s.client.Get(r.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		fail(w, err)
		return
	}
	for _, kv := range found.Kvs {
		fmt.Fprintln(w, strings.TrimPrefix(string(kv.Key), prefix))
	}
}

// fail distinguishes an unreachable region, which doesn't affect others, from
// errors of the request or this process.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var cut *compose.ClusterError
	switch {
	case errors.As(err, &cut):
		status = http.StatusBadGateway
	case errors.Is(err, compose.ErrNoRoute):
		status = http.StatusNotFound
	}
	http.Error(w, err.Error(), status)
}
