package rehearsal

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

const counter = `return {
  scope = { "/ctr", "/seen/" },
  operations = { { op = "read", key = "/ctr-increment" }, { op = "block", key = "/ctr-next" } },
  events = { { event = "modified", prefix = "/seen/" } },
  read = function(request)
    local n = tonumber(get("/ctr") or "0") + 1
    put("/ctr", n)
    return n
  end,
  block = function() block("/ctr") end,
  event = function(event)
    suppress()
    notify("/seen/news", event.value)
  end,
}`

func started(t *testing.T) *Rehearsal {
	r := New()
	require.NoError(t, r.Register("counter", []byte(counter), Caller{Client: "alice"}))
	return r
}

func get(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }
func put(key, value string) *pb.PutRequest {
	return &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
}

func TestAnExtensionHandlesTheRequestsOfThoseWhoUseIt(t *testing.T) {
	r := started(t)
	alice, bob := Caller{Client: "alice"}, Caller{Client: "bob"}
	report := r.Do(get("/ctr-increment"), alice)
	require.Equal(t, "counter", report.Handler)
	require.Equal(t, "1", string(report.Response.(*pb.RangeResponse).GetKvs()[0].GetValue()))
	require.Len(t, report.Runs, 1)
	run := report.Runs[0]
	require.Equal(t, []string{"counter", "read", "/ctr-increment"}, []string{run.Extension, run.Handler, run.Key})
	require.Equal(t, 2, run.Operations)
	require.Positive(t, run.Steps)
	require.Positive(t, run.Bytes)
	require.Len(t, report.Changes, 1)
	require.Equal(t, "/ctr", string(report.Changes[0].Kv.Key()))

	report = r.Do(get("/ctr-increment"), bob)
	require.Empty(t, report.Handler)
	require.Empty(t, report.Response.(*pb.RangeResponse).GetKvs())
	require.Empty(t, report.Runs)

	require.NoError(t, r.Do(put("/em/counter/ack", "once"), bob).Err)
	require.Equal(t, "counter", r.Do(get("/ctr-increment"), bob).Handler)
	require.Empty(t, r.Do(get("/ctr-increment"), bob).Handler)
}

func TestARefusalChangesNothing(t *testing.T) {
	r := New()
	require.ErrorIs(t, r.Register("bad", []byte("return 1"), Caller{}), fault.BadExtension)
	require.Empty(t, r.Extensions().All())
	report := r.Do(&pb.CompactionRequest{Revision: 1}, Caller{})
	require.ErrorContains(t, report.Err, "can't be rehearsed")
}

func TestWatches(t *testing.T) {
	r := started(t)
	alice := Caller{Client: "alice"}
	// One that waits for another key, one of who uses the extension, one of who doesn't.
	report := r.Watch(&pb.WatchCreateRequest{Key: []byte("/ctr-next")}, alice)
	require.NoError(t, report.Err)
	key, end := r.Watched(report.Watch)
	require.Equal(t, "/ctr", string(key))
	require.Empty(t, end)
	require.Equal(t, 2, r.Watch(&pb.WatchCreateRequest{Key: []byte("/seen/"), RangeEnd: []byte("/seen0")}, alice).Watch)
	require.Equal(t, 3, r.Watch(&pb.WatchCreateRequest{Key: []byte("/seen/"), RangeEnd: []byte{0}}, Caller{}).Watch)

	report = r.Do(get("/ctr-increment"), alice)
	require.Len(t, report.Events, 1)
	require.Equal(t, 1, report.Events[0].Watch)

	require.NoError(t, r.Do(put("/seen/x", "1"), alice).Err)
	report = r.Do(put("/seen/x", "2"), alice)
	require.True(t, report.Changes[0].Hidden())
	require.True(t, report.Changes[1].Notice())
	var seen []string
	for _, e := range report.Events {
		seen = append(seen, string(e.Kv.Key()))
	}
	require.Equal(t, []string{"/seen/news", "/seen/x", "/seen/news"}, seen)

	// The key is there by now, so the answer comes at once.
	report = r.Watch(&pb.WatchCreateRequest{Key: []byte("/ctr-next")}, alice)
	require.Len(t, report.Events, 1)
	require.Equal(t, "1", string(report.Events[0].Kv.Value()))
}

func TestLeasesEndWhenARequestSaysSo(t *testing.T) {
	r := New()
	require.False(t, r.HasLease(7))
	require.NoError(t, r.Do(&pb.LeaseGrantRequest{ID: 7, TTL: 60}, Caller{}).Err)
	require.True(t, r.HasLease(7))
	require.NoError(t, r.Do(&pb.PutRequest{Key: []byte("/k"), Lease: 7}, Caller{}).Err)
	report := r.Do(&pb.LeaseRevokeRequest{ID: 7}, Caller{})
	require.True(t, report.Changes[0].Delete)
	require.False(t, r.HasLease(7))
}
