package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

// crowded are twins with so many registered extensions, whose sources have lease 7.
func crowded(t *testing.T, n int) *twins {
	w := newTwins(t, 2)
	w.succeed(&pb.LeaseGrantRequest{ID: 7, TTL: 600})
	for i := range n {
		put := sourcePut(fmt.Sprintf("e%03d", i), fmt.Sprintf(`return { scope = { "/r%d/" }, operations = { { op = "put", prefix = "/r%[1]d/" } }, put = function() end }`, i))
		put.Lease = 7
		w.succeed(put)
	}
	require.Equal(t, n, w.first.Extensions().Len())
	return w
}

func (w *twins) succeed(req proto.Message) {
	r, _ := w.ask(who{}, req)
	require.NoError(w.t, r.Err)
}

func deletion(key, end string) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}
}

func transaction(ranges ...*pb.DeleteRangeRequest) *pb.TxnRequest {
	req := &pb.TxnRequest{}
	for _, r := range ranges {
		req.Success = append(req.Success, operationOf(r))
	}
	return req
}

// A request removes a bounded number of extensions, or none, whatever its form.
func TestRemovalsAreBounded(t *testing.T) {
	w := crowded(t, maxRemovals+2)
	for _, req := range []proto.Message{
		deletion("/em/", "/em0"), deletion("/", "\x00"), transaction(deletion("/", "\x00")),
		transaction(deletion("/em", "/em/e100/"), deletion("/em", "/em0")),
	} {
		r, _ := w.ask(who{}, req)
		require.ErrorIs(t, r.Err, fault.TooMuchWork)
		require.ErrorContains(t, r.Err, "delete them in smaller ranges")
		require.Equal(t, maxRemovals+2, w.first.Extensions().Len())
	}
	w.succeed(deletion("/em/e000", "/em/e001~"))
	w.requireEqual()
	require.Equal(t, maxRemovals, w.first.Extensions().Len())
	w.succeed(transaction(deletion("/", "\x00")))
	w.requireEqual()
	require.Zero(t, w.first.Extensions().Len())
}

// The end of a lease can't be refused: it goes on in steps.
func TestALeaseOfManyExtensionsEndsInSteps(t *testing.T) {
	w := crowded(t, 2*maxRemovals+1)
	for _, left := range []int{maxRemovals + 1, 1} {
		r, _ := w.ask(who{}, &pb.LeaseRevokeRequest{ID: 7})
		require.ErrorIs(t, r.Err, fault.LeaseEnding)
		require.Equal(t, left, w.first.Extensions().Len())
	}
	w.succeed(&pb.LeaseRevokeRequest{ID: 7})
	require.Zero(t, w.first.Extensions().Len())
	r, _ := w.ask(who{}, &pb.LeaseRevokeRequest{ID: 7})
	require.ErrorIs(t, r.Err, fault.LeaseNotFound)
	w.requireEqual()
}

// A range in a transaction can't delete limits without which the extensions don't fit.
func TestATransactionKeepsTheLimits(t *testing.T) {
	w := newTwins(t, 2)
	w.succeed(&pb.PutRequest{Key: []byte(extension.LimitsKey), Value: []byte(`{"memory_total": 268435456, "memory": 16777216}`)})
	for i := range 46 {
		w.succeed(sourcePut(fmt.Sprintf("e%03d", i), `local s = ("x"):rep(1500000) `+handler("return #s")))
	}
	r, _ := w.ask(who{}, transaction(deletion("/em", "/em/0")))
	require.ErrorIs(t, r.Err, fault.BadExtension)
	require.ErrorContains(t, r.Err, "without /em/.limits the limits are the defaults")
	w.succeed(transaction(deletion("/em", "/em0"))) // with them
}
