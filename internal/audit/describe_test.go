package audit

import (
	"testing"

	"github.com/stretchr/testify/require"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/lockpb"
)

func TestMovesOfKeysAreDescribed(t *testing.T) {
	keys := []Range{{Op: "prefix", Key: "/a/"}}
	var move, pin, unpin Record
	move.Describe(&stoapb.MoveKeysRequest{Prefix: []byte("/a/"), Partition: 2})
	require.Equal(t, Record{Keys: keys, Subject: Subject{Action: "move to partition 2"}}, move)
	pin.Describe(&stoapb.PinKeysRequest{Prefix: []byte("/a/"), Partition: 3})
	require.Equal(t, Record{Keys: keys, Subject: Subject{Action: "pin to partition 3"}}, pin)
	unpin.Describe(&stoapb.UnpinKeysRequest{Prefix: []byte("/a/")})
	require.Equal(t, Record{Keys: keys}, unpin)
	var resize Record
	resize.Describe(&stoapb.ResizeRequest{Partitions: 8})
	require.Equal(t, Record{Subject: Subject{Action: "8 partitions"}}, resize)
}

// The lines about locks and elections have the keys that were written, as far as they are known,
// and no candidate's value.
func TestLocksAndElectionsAreDescribed(t *testing.T) {
	leader := &lockpb.LeaderKey{Name: []byte("n"), Key: []byte("n/1f"), Rev: 7, Lease: 0x1f}
	for name, tc := range map[string]struct {
		req, resp any
		want      Record
	}{
		"lock":           {&lockpb.LockRequest{Name: []byte("n"), Lease: 0x1f}, nil, described("put", "n", "1f")},
		"locked":         {&lockpb.LockRequest{Name: []byte("n")}, &lockpb.LockResponse{Key: []byte("n/1f")}, described("put", "n/1f", "")},
		"unlock":         {&lockpb.UnlockRequest{Key: []byte("n/1f")}, &lockpb.UnlockResponse{}, described("delete", "n/1f", "")},
		"campaign":       {&lockpb.CampaignRequest{Name: []byte("n"), Value: []byte("v"), Lease: 0x1f}, nil, described("put", "n", "1f")},
		"elected":        {&lockpb.CampaignRequest{Name: []byte("n"), Value: []byte("v")}, &lockpb.CampaignResponse{Leader: leader}, described("put", "n/1f", "1f")},
		"proclaim":       {&lockpb.ProclaimRequest{Leader: leader, Value: []byte("v")}, &lockpb.ProclaimResponse{}, described("put", "n/1f", "1f")},
		"resign":         {&lockpb.ResignRequest{Leader: leader}, &lockpb.ResignResponse{}, described("delete", "n/1f", "1f")},
		"resign as none": {&lockpb.ResignRequest{}, nil, described("delete", "", "")},
		"leader":         {&lockpb.LeaderRequest{Name: []byte("n")}, nil, described("range", "n", "")},
	} {
		var got Record
		got.Describe(tc.req)
		got.Outcome(tc.resp)
		require.Equal(t, tc.want, got, name)
	}
}

func described(op, key, lease string) Record {
	return Record{Keys: []Range{{Op: op, Key: key}}, Subject: Subject{Lease: lease}}
}
