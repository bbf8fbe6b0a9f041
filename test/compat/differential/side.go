package differential

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/test/process"
)

// side is one of the two clusters, with a connection to each of its servers.
type side struct {
	name    string
	cluster *process.Cluster
	conns   []*grpc.ClientConn
	between *process.Server // a sidecar, or nil
	granted map[int64]bool  // leases; others are those of the sidecar's sessions
}

func newSide(name string, c *process.Cluster) (*side, error) {
	s := &side{name: name, cluster: c, granted: map[int64]bool{}}
	return s, s.connect(c.Endpoints())
}

func (s *side) connect(urls []string) error {
	for _, url := range urls {
		conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", url, err)
		}
		s.conns = append(s.conns, conn)
	}
	return nil
}

// through has all requests go through a sidecar from now on.
func (s *side) through(between *process.Server) error {
	for _, c := range s.conns {
		c.Close()
	}
	s.conns, s.between = nil, between
	return s.connect([]string{between.ClientURL})
}

// directly has all requests go to the servers again.
func (s *side) directly() error {
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
	return s.connect(s.cluster.Endpoints())
}

func (s *side) close() {
	for _, c := range s.conns {
		c.Close()
	}
	if s.between != nil {
		_ = s.between.Kill()
	}
	s.cluster.Close()
}

// answer is what a server said: a message or an error.
type answer struct {
	msg proto.Message
	err string // code and text
}

func (a answer) String() string {
	if a.err != "" {
		return "error " + a.err
	}
	return fmt.Sprintf("%T{%v}", a.msg, a.msg)
}

// call sends one request to one server.
func (s *side) call(server int, req proto.Message) answer {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	msg, err := send(ctx, s.conns[server%len(s.conns)], req)
	if err != nil {
		st := status.Convert(err)
		return answer{err: fmt.Sprintf("%v: %s", st.Code(), st.Message())}
	}
	if s.between != nil {
		s.withoutSessions(msg)
	}
	return answer{msg: msg}
}

// withoutSessions removes leases from a list that are a sidecar's own.
func (s *side) withoutSessions(msg proto.Message) {
	switch m := msg.(type) {
	case *pb.LeaseGrantResponse:
		s.granted[m.ID] = true
	case *pb.LeaseLeasesResponse:
		m.Leases = slices.DeleteFunc(m.Leases, func(l *pb.LeaseStatus) bool { return !s.granted[l.ID] })
	}
}

// streamed asks for a Range by RangeStream.
type streamed struct{ *pb.RangeRequest }

func send(ctx context.Context, conn *grpc.ClientConn, req proto.Message) (proto.Message, error) {
	kv, lease := pb.NewKVClient(conn), pb.NewLeaseClient(conn)
	switch r := req.(type) {
	case *pb.RangeRequest:
		return kv.Range(ctx, r)
	case streamed:
		return sendStreamed(ctx, kv, r.RangeRequest)
	case *pb.PutRequest:
		return kv.Put(ctx, r)
	case *pb.DeleteRangeRequest:
		return kv.DeleteRange(ctx, r)
	case *pb.TxnRequest:
		return kv.Txn(ctx, r)
	case *pb.CompactionRequest:
		return kv.Compact(ctx, r)
	case *pb.LeaseGrantRequest:
		return lease.LeaseGrant(ctx, r)
	case *pb.LeaseRevokeRequest:
		return lease.LeaseRevoke(ctx, r)
	case *pb.LeaseTimeToLiveRequest:
		return lease.LeaseTimeToLive(ctx, r)
	case *pb.LeaseLeasesRequest:
		return lease.LeaseLeases(ctx, r)
	case *pb.LeaseKeepAliveRequest:
		stream, err := lease.LeaseKeepAlive(ctx)
		if err != nil {
			return nil, err
		}
		if err := stream.Send(r); err != nil {
			return nil, err
		}
		defer stream.CloseSend()
		return stream.Recv()
	case *pb.DefragmentRequest:
		return pb.NewMaintenanceClient(conn).Defragment(ctx, r)
	case *pb.HashKVRequest:
		return pb.NewMaintenanceClient(conn).HashKV(ctx, r)
	}
	return nil, fmt.Errorf("no call takes a %T", req)
}

// sendStreamed puts the chunks of a RangeStream together; where it is cut into chunks
// is the server's business.
func sendStreamed(ctx context.Context, kv pb.KVClient, r *pb.RangeRequest) (proto.Message, error) {
	stream, err := kv.RangeStream(ctx, r)
	if err != nil {
		return nil, err
	}
	whole := &pb.RangeResponse{}
	for {
		chunk, err := stream.Recv()
		if err == io.EOF {
			return whole, nil
		}
		if err != nil {
			return nil, err
		}
		proto.Merge(whole, chunk.RangeResponse)
	}
}
