package audit

import (
	"testing"

	"github.com/stretchr/testify/require"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
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
