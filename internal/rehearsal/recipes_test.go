package rehearsal

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/extensions"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

// recipe is a cluster in which leases with a few keys end in steps, each in a request of its own, like those with thousands
// elsewhere.
type recipe struct {
	*Rehearsal
	t      require.TestingT
	ending map[int64]bool
	there  map[string]bool // the elements of a queue
}

func newRecipe(t require.TestingT, name string) *recipe {
	r := &recipe{New(), t, map[int64]bool{}, map[string]bool{}}
	list := membership.OfIDs(1)
	list.Level = version.Newest
	r.machine.LoadMembership(list, nil)
	r.put(extension.LimitsKey, `{"event_steps": 2000}`)
	require.NoError(t, r.Register(name, []byte(extensions.Source(name)), Caller{}))
	return r
}

func (r *recipe) put(key, value string) *pb.PutResponse {
	report := r.Do(&pb.PutRequest{Key: []byte(key), Value: []byte(value)}, Caller{})
	require.NoError(r.t, report.Err)
	return report.Response.(*pb.PutResponse)
}

func (r *recipe) watch(key string) {
	require.NoError(r.t, r.Watch(&pb.WatchCreateRequest{Key: []byte(key)}, Caller{}).Err)
}

// del deletes a key. If the handlers of that are too much work, it isn't done.
func (r *recipe) del(key string) bool {
	return r.Do(&pb.DeleteRangeRequest{Key: []byte(key)}, Caller{}).Err == nil
}

// below is what is below a prefix that ends in a slash.
func (r *recipe) below(prefix string) map[string]string {
	report := r.Do(&pb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(strings.TrimSuffix(prefix, "/") + "0")}, Caller{})
	require.NoError(r.t, report.Err)
	all := map[string]string{}
	for _, kv := range report.Response.(*pb.RangeResponse).Kvs {
		all[strings.TrimPrefix(string(kv.Key), prefix)] = string(kv.Value)
	}
	return all
}

// grant grants a lease, unless it is there. One that is ending can't be.
func (r *recipe) grant(id int64) bool {
	if !r.ending[id] && !r.HasLease(id) {
		require.NoError(r.t, r.Do(&pb.LeaseGrantRequest{ID: id, TTL: grantTTL}, Caller{}).Err)
	}
	return !r.ending[id]
}

const grantTTL = 60

// revoke does one step of the end of a lease.
func (r *recipe) revoke(id int64) {
	if !r.ending[id] && !r.HasLease(id) {
		return
	}
	err := r.Do(&pb.LeaseRevokeRequest{ID: id}, Caller{}).Err
	if r.ending[id] = err != nil; err != nil {
		require.ErrorIs(r.t, err, fault.LeaseEnding)
	}
}

// settle ends what is ending.
func (r *recipe) settle() {
	for _, id := range leases {
		for r.ending[id] {
			r.revoke(id)
		}
	}
}

var leases = []int64{1, 2, 3}

// rehearse has up to so many requests made, and looks at what there is behind each.
func rehearse(t *testing.T, name string, most int, request func(t *rapid.T, r *recipe, op, id string, lease int64), ops string, look func(r *recipe, settled bool)) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecipe(t, name)
		if name == "semaphore" {
			r.put("/semaphore/limit/s", "2")
		}
		for range rapid.IntRange(1, most).Draw(t, "requests") {
			op := rapid.SampledFrom(strings.Fields(ops)).Draw(t, "op")
			id := rapid.SampledFrom(strings.Split("abcdefghijkl", "")).Draw(t, "id")
			lease := rapid.SampledFrom(leases).Draw(t, "lease")
			if op == "revoke" {
				r.revoke(lease)
			} else {
				request(t, r, op, id, lease)
			}
			look(r, false)
		}
		r.settle()
		look(r, true)
	})
}

// Whatever ends, in how many steps: in the end the leader is a candidate, if there is any, and the only one.
func TestElectionWhileLeasesEndInSteps(t *testing.T) {
	rehearse(t, "election", 120, func(_ *rapid.T, r *recipe, op, id string, lease int64) {
		id = fmt.Sprintf("%s-%x", id, lease)
		switch {
		case op == "resign":
			r.del("/election/candidates/" + id)
		case r.grant(lease):
			r.watch("/election/campaign/" + id)
		}
	}, "campaign campaign campaign campaign campaign campaign resign revoke", func(r *recipe, settled bool) {
		candidates, leads := r.below("/election/candidates/"), r.below("/election/campaign/")
		require.LessOrEqual(r.t, len(leads), 1)
		if !settled {
			return
		}
		leader, led := r.below("/election/")["leader"]
		require.Equal(r.t, len(candidates) > 0, led, "%v", candidates)
		if led {
			require.Contains(r.t, candidates, leader)
			require.Equal(r.t, map[string]string{leader: ""}, leads)
		}
	})
}

// The next leader is the candidate of another lease, however many the one that ends in steps has, and also if these resign
// meanwhile.
func TestElectionBesideALeaseThatEndsInSteps(t *testing.T) {
	for n := range 20 {
		r := newRecipe(t, "election")
		for i := range n {
			require.True(t, r.grant(1))
			r.watch(fmt.Sprintf("/election/campaign/%02d-1", i))
		}
		require.True(t, r.grant(2))
		r.watch("/election/campaign/next-2")
		r.revoke(1)
		for i := range n {
			require.True(t, r.del(fmt.Sprintf("/election/candidates/%02d-1", i)))
		}
		r.settle()
		require.Equal(t, "next-2", r.below("/election/")["leader"], n)
	}
}

// Nobody has the semaphore beyond its limit, or waits while it has it, and in the end nobody waits for what is free.
func TestSemaphoreWhileLeasesEndInSteps(t *testing.T) {
	const limit = 2
	rehearse(t, "semaphore", 60, func(_ *rapid.T, r *recipe, op, id string, lease int64) {
		switch op {
		case "try":
			r.put("/semaphore/acquire/s/"+id, "")
		case "wait":
			r.watch("/semaphore/acquire/s/" + id)
		case "release":
			r.del("/semaphore/holders/s/" + id)
		case "cancel":
			r.del("/semaphore/waiting/s/" + id)
		case "lease":
			if r.grant(lease) {
				r.watch(fmt.Sprintf("/semaphore/acquire/s/%s/%x", id, lease))
			}
		}
	}, "try wait lease lease lease release cancel revoke", func(r *recipe, settled bool) {
		holders, waiting := r.below("/semaphore/holders/s/"), r.below("/semaphore/waiting/s/")
		require.LessOrEqual(r.t, len(holders), limit)
		for id := range holders {
			require.NotContains(r.t, waiting, id)
		}
		if settled && len(holders) < limit {
			require.Empty(r.t, waiting)
		}
	})
}

// No element is lost or is there twice.
func TestQueueWhileLeasesEndInSteps(t *testing.T) {
	rehearse(t, "queue", 80, func(_ *rapid.T, r *recipe, op, id string, lease int64) {
		switch op {
		case "add":
			element := fmt.Sprint("element at ", r.index)
			r.put("/queue/add", element)
			r.there[element] = true
		case "head":
			if kv := r.put("/queue/head", "").PrevKv; kv != nil {
				delete(r.there, string(kv.Value))
			}
		case "take":
			if r.grant(lease) {
				r.watch(fmt.Sprintf("/queue/take/%s/%x", id, lease))
			}
		case "done":
			element := r.below("/queue/taken/")[id]
			r.del("/queue/taken/" + id)
			delete(r.there, element)
		case "return":
			r.del("/queue/take/" + id)
		}
	}, "add add add head take take take done return revoke", func(r *recipe, settled bool) {
		items, taken := r.below("/queue/items/"), r.below("/queue/taken/")
		found := map[string]bool{}
		for _, all := range []map[string]string{items, taken} {
			for element := range maps.Values(all) {
				require.False(r.t, found[element], "%q is there twice", element)
				found[element] = true
			}
		}
		require.Equal(r.t, r.there, found)
		if settled && len(items) > 0 {
			require.Empty(r.t, r.below("/queue/line/"))
		}
	})
}

// A lease that can't be read is refused: without one the hold would stay when its holder is gone.
func TestRecipesRefuseWhatIsNoLease(t *testing.T) {
	for name, key := range map[string]string{"queue": "/queue/take/id/", "barrier": "/barrier/enter/id/", "semaphore": "/semaphore/acquire/s/id/"} {
		r := newRecipe(t, name)
		r.put("/barrier/threshold", "1")
		r.put("/semaphore/limit/s", "1")
		require.True(t, r.grant(0x1f))
		for lease, want := range map[string]string{"1f": "", "": "no lease in hexadecimal", "xyz": "no lease in hexadecimal", "2f": "does not exist"} {
			err := r.Watch(&pb.WatchCreateRequest{Key: []byte(key + lease)}, Caller{}).Err
			if want == "" {
				require.NoError(t, err, key)
			} else {
				require.ErrorContains(t, err, want, key+lease)
			}
			r.ending[0x1f] = false
			r.revoke(0x1f)
			require.True(t, r.grant(0x1f))
		}
	}
}
