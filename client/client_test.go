package client_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

type partitions struct {
	stoapb.UnimplementedPartitionsServer
}

func (partitions) List(context.Context, *stoapb.ListPartitionsRequest) (*stoapb.ListPartitionsResponse, error) {
	return &stoapb.ListPartitionsResponse{MemberId: 7, Partitions: []*stoapb.Partition{{Id: 0}, {Id: 1, Leader: 7}}}, nil
}

func TestPartitions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	stoapb.RegisterPartitionsServer(s, partitions{})
	go func() { _ = s.Serve(l) }()
	defer s.Stop()

	c, err := client.New(clientv3.Config{Endpoints: []string{l.Addr().String()}, DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := c.Partitions(ctx)
	require.NoError(t, err)
	require.Len(t, r.Partitions, 2)
	require.EqualValues(t, 7, r.Partitions[1].Leader)
}
