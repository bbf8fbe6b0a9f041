package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// capacityKey is the number of machines that a region may use. It is in the region's cluster.
func capacityKey(region string) string { return "/" + region + "/capacity/machines" }

var errTooFew = errors.New("the region doesn't have that many")

// capacity shows what both regions have, at one moment.
func (s *service) capacity(w http.ResponseWriter, r *http.Request) {
	a, err := s.client.Txn(r.Context()).Then(clientv3.OpGet(capacityKey("eu")), clientv3.OpGet(capacityKey("us"))).Commit()
	if err != nil {
		fail(w, err)
		return
	}
	for _, response := range a.Responses {
		for _, kv := range response.GetResponseRange().Kvs {
			fmt.Fprintf(w, "%s %s\n", kv.Key, kv.Value)
		}
	}
}

// moveCapacity moves machines between the regions, in one transaction over both clusters:
// whatever fails, the sum stays.
func (s *service) moveCapacity(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil || n < 1 || r.PathValue("from") == r.PathValue("to") {
		http.Error(w, "n must be a positive number, of machines between two regions", http.StatusBadRequest)
		return
	}
	from, to := capacityKey(r.PathValue("from")), capacityKey(r.PathValue("to"))
	_, err = s.client.STM(r.Context(), func(t concurrency.STM) error {
		there, _ := strconv.Atoi(t.Get(from)) // 0 if there is none
		here, _ := strconv.Atoi(t.Get(to))
		if there < n {
			return errTooFew
		}
		t.Put(from, strconv.Itoa(there-n))
		t.Put(to, strconv.Itoa(here+n))
		return nil
	})
	switch {
	case errors.Is(err, errTooFew):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		fail(w, err)
	}
}
