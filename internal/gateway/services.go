package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/lockpb"
)

// The services of package lockpb and stoa's own have no generated code for their routes. These
// handlers do what that of etcd's API does.

func registerLocks(mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
	lock, election := lockpb.NewLockClient(conn), lockpb.NewElectionClient(conn)
	return errors.Join(
		unary(mux, "/v3/lock/lock", lockpb.Lock_Lock_FullMethodName, lock.Lock),
		unary(mux, "/v3/lock/unlock", lockpb.Lock_Unlock_FullMethodName, lock.Unlock),
		unary(mux, "/v3/election/campaign", lockpb.Election_Campaign_FullMethodName, election.Campaign),
		unary(mux, "/v3/election/proclaim", lockpb.Election_Proclaim_FullMethodName, election.Proclaim),
		unary(mux, "/v3/election/leader", lockpb.Election_Leader_FullMethodName, election.Leader),
		unary(mux, "/v3/election/resign", lockpb.Election_Resign_FullMethodName, election.Resign),
		stream(mux, "/v3/election/observe", lockpb.Election_Observe_FullMethodName, election.Observe),
	)
}

// registerOwn is for those of stoa's own services that have something to show.
func registerOwn(mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
	partitions, quotas, extensions := stoapb.NewPartitionsClient(conn), stoapb.NewQuotasClient(conn), stoapb.NewExtensionsClient(conn)
	return errors.Join(
		unary(mux, "/v3/stoa/partitions/list", stoapb.Partitions_List_FullMethodName, partitions.List),
		unary(mux, "/v3/stoa/quotas/list", stoapb.Quotas_List_FullMethodName, quotas.List),
		stream(mux, "/v3/stoa/extensions/logs", stoapb.Extensions_Logs_FullMethodName, extensions.Logs),
	)
}

// message is a pointer to a T that is a message.
type message[T any] interface {
	*T
	proto.Message
}

func unary[Q any, A proto.Message, P message[Q]](mux *runtime.ServeMux, path, method string, call func(context.Context, P, ...grpc.CallOption) (A, error)) error {
	return handle(mux, path, method, func(ctx context.Context, out runtime.Marshaler, w http.ResponseWriter, r *http.Request, request P) {
		var md runtime.ServerMetadata
		answer, err := call(ctx, request, grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
		ctx = runtime.NewServerMetadataContext(ctx, md)
		if err != nil {
			runtime.HTTPError(ctx, mux, out, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, out, w, r, answer, mux.GetForwardResponseOptions()...)
	})
}

func stream[Q, A any, P message[Q], M message[A]](mux *runtime.ServeMux, path, method string, call func(context.Context, P, ...grpc.CallOption) (grpc.ServerStreamingClient[A], error)) error {
	return handle(mux, path, method, func(ctx context.Context, out runtime.Marshaler, w http.ResponseWriter, r *http.Request, request P) {
		var md runtime.ServerMetadata
		answers, err := call(ctx, request)
		if err == nil {
			md.HeaderMD, err = answers.Header()
		}
		ctx = runtime.NewServerMetadataContext(ctx, md)
		if err != nil {
			runtime.HTTPError(ctx, mux, out, w, r, err)
			return
		}
		recv := func() (proto.Message, error) {
			answer, err := answers.Recv()
			return M(answer), err
		}
		runtime.ForwardResponseStream(ctx, mux, out, w, r, recv, mux.GetForwardResponseOptions()...)
	})
}

// handle decodes requests.
func handle[Q any, P message[Q]](mux *runtime.ServeMux, path, method string, do func(context.Context, runtime.Marshaler, http.ResponseWriter, *http.Request, P)) error {
	return mux.HandlePath(http.MethodPost, path, func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		in, out := runtime.MarshalerForRequest(mux, r)
		annotated, err := runtime.AnnotateContext(ctx, mux, r, method, runtime.WithHTTPPathPattern(path))
		if err != nil {
			runtime.HTTPError(ctx, mux, out, w, r, err)
			return
		}
		request := P(new(Q))
		if err := in.NewDecoder(r.Body).Decode(request); err != nil && !errors.Is(err, io.EOF) {
			ctx = runtime.NewServerMetadataContext(annotated, runtime.ServerMetadata{})
			runtime.HTTPError(ctx, mux, out, w, r, status.Error(codes.InvalidArgument, err.Error()))
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // so that the connection can be used again
		do(annotated, out, w, r, request)
	})
}
