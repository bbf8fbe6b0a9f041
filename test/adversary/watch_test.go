package adversary

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// openWatches is how many streams and sessions the adversary leaves open.
const openWatches = 40

// TestAnAdversaryWatchesNothing leaves watches of all kinds open while hidden keys change:
// nothing of the changes comes, to streams and to sessions.
func TestAnAdversaryWatchesNothing(t *testing.T) {
	t.Parallel()
	w := newTwin(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "token", w.token)
	var listening sync.WaitGroup
	for n := range openWatches {
		g := generator{rand.New(rand.NewPCG(*seed, uint64(n)))}
		if n%2 == 0 {
			w.watch(ctx, &listening, g)
		} else {
			w.watchInSession(ctx, &listening, g)
		}
	}
	for i := range 20 {
		_, err := w.root.Put(t.Context(), "/hidden/a/1", fmt.Sprint("s3cr3t ", i))
		require.NoError(t, err)
		_, err = w.root.Put(t.Context(), "/called/x", "s3cr3t")
		require.NoError(t, err)
		_, err = w.root.Delete(t.Context(), "/hidden/b/1")
		require.NoError(t, err)
	}
	time.AfterFunc(300*time.Millisecond, cancel) // more time finds more; none is needed to pass
	listening.Wait()
	w.healthy()
}

func (w *twin) watch(ctx context.Context, listening *sync.WaitGroup, g generator) {
	stream, err := pb.NewWatchClient(w.conn).Watch(ctx)
	require.NoError(w.t, err)
	for range 3 {
		create := &pb.WatchCreateRequest{}
		g.message(create.ProtoReflect(), 2)
		require.NoError(w.t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}))
	}
	listening.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			if len(r.Events) > 0 || r.Created && !r.Canceled || r.CompactRevision != 0 || leaks(r.String()) {
				w.t.Errorf("a watch of somebody without rights: %v", r)
			}
		}
	})
}

func (w *twin) watchInSession(ctx context.Context, listening *sync.WaitGroup, g generator) {
	stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, stoapb.Sessions_Open_FullMethodName)
	require.NoError(w.t, err)
	b := &stoapb.ClientBatch{Open: &stoapb.OpenSession{Ttl: 60, PartitionMap: true}}
	for seq := range uint64(3) {
		create := &pb.WatchCreateRequest{}
		g.message(create.ProtoReflect(), 2)
		body, err := proto.Marshal(create)
		require.NoError(w.t, err)
		b.Requests = append(b.Requests, &stoapb.Request{Seq: seq + 1, Kind: stoapb.Kind_WATCH, Level: stoapb.Level(g.IntN(3)), Body: body})
	}
	require.NoError(w.t, stream.SendMsg(b))
	listening.Go(func() {
		for {
			answer := &stoapb.ServerBatch{}
			if stream.RecvMsg(answer) != nil {
				return
			}
			for _, r := range answer.Replies {
				var body pb.WatchResponse
				require.NoError(w.t, proto.Unmarshal(r.Body, &body))
				if len(body.Events) > 0 || body.CompactRevision != 0 || r.Event && !body.Canceled || leaks(strings.ToValidUTF8(string(r.Body), "")) {
					w.t.Errorf("a watch of somebody without rights, in a session: %v %v", r, &body)
				}
			}
		}
	})
}
