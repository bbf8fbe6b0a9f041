package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// sampler is a Meter that adds up the weights by key.
type sampler struct {
	cost
	weights map[string]int64
}

func (s *sampler) Sampled(at *placement.Spot, weight int64) { s.weights[string(at.Prefix)] += weight }

func samplingRig() (*Machine, *sampler) {
	r := newRig(4)
	s := &sampler{weights: map[string]int64{}}
	r.quiet, r.Meter = true, s
	return r.Machine, s
}

// The samples of a large entry stand for all of its commands, whatever their pattern.
func TestSamplesStandForAllCommands(t *testing.T) {
	m, s := samplingRig()
	const entries, size = 200, 200
	var flat []string // in partition 0
	for i := 0; len(flat) < 4; i++ {
		if key := fmt.Sprint("k", i); m.Placement().Partition([]byte(key)) == 0 {
			flat = append(flat, key)
		}
	}
	for n := range entries {
		e := command.Entry{Stamp: int64(2 + n*size), Seq: uint64(n)}
		for i := range size {
			key := flat[i%4] // a pattern
			body, err := proto.Marshal(&pb.PutRequest{Key: []byte(key)})
			require.NoError(t, err)
			e.Commands = append(e.Commands, command.Command{Kind: command.Put, Body: body})
		}
		m.Local(0, uint64(n+1), 1, &e, nil)
	}
	require.Len(t, s.weights, 4)
	for key, w := range s.weights {
		require.InEpsilon(t, entries*size/4, w, 0.1, key)
	}
}

// Every request that names a key is attributed to it, in an entry of its own, with a weight that
// grows with its size; a request of all partitions is to none.
func TestRequestsAreSampledByTheirFirstKey(t *testing.T) {
	m, s := samplingRig()
	rev, index := int64(2), uint64(0)
	run := func(kind command.Kind, parts placement.Set, req proto.Message) {
		body, err := proto.Marshal(req)
		require.NoError(t, err)
		index++
		e := command.Entry{Stamp: rev, Commands: []command.Command{{Kind: kind, Body: body}}}
		rev++
		if parts.Len() == 1 {
			m.Local(parts.First(), index, 1, &e, nil)
			return
		}
		e.Parts = parts
		var at []Arrival
		for p := range parts.Each() {
			at = append(at, Arrival{Partition: p, Index: index, Term: 1})
		}
		m.Rendezvous(at, &e, nil)
	}
	of := func(key string) placement.Set { return placement.Of(m.Placement().Partition([]byte(key))) }
	put := func(key string, size int) *pb.PutRequest {
		return &pb.PutRequest{Key: []byte(key), Value: make([]byte, size)}
	}
	run(command.Put, of("a"), put("a", 1))
	run(command.Put, of("large"), put("large", 5120))
	run(command.DeleteRange, of("b"), &pb.DeleteRangeRequest{Key: []byte("b")})
	run(command.Txn, of("c"), &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("c"), TargetUnion: &pb.Compare_Version{Version: 9}}}})
	run(command.Txn, of("d")|of("e1")|of("e2")|of("e3"), &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put("d", 1)}}}}}},
	}})
	run(command.LeaseGrant, m.Placement().All(), &pb.LeaseGrantRequest{ID: 7, TTL: 60})
	require.Equal(t, map[string]int64{"a": 1, "large": 11, "b": 1, "c": 1, "d": 1}, s.weights)
}
