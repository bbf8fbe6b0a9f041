package gateway

import (
	"context"
	"mime"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

// clientStreams are the paths at which a request has any number of messages, and its answer
// goes on after the last.
var clientStreams = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// New returns the handler of all paths below /v3/. maxMessage is the size of the
// largest message that conn's server takes, in bytes.
func New(conn grpc.ClientConnInterface, maxMessage int) (http.Handler, error) {
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, bounded{
		Marshaler: &runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
		}},
		limit: jsonFactor * maxMessage,
	}))
	ctx := context.Background()
	for _, err := range []error{
		gw.RegisterKVHandlerClient(ctx, mux, pb.NewKVClient(conn)),
		gw.RegisterWatchHandlerClient(ctx, mux, pb.NewWatchClient(conn)),
		gw.RegisterLeaseHandlerClient(ctx, mux, pb.NewLeaseClient(conn)),
		gw.RegisterClusterHandlerClient(ctx, mux, pb.NewClusterClient(conn)),
		gw.RegisterMaintenanceHandlerClient(ctx, mux, pb.NewMaintenanceClient(conn)),
		gw.RegisterAuthHandlerClient(ctx, mux, pb.NewAuthClient(conn)),
		registerLocks(mux, conn),
		registerOwn(mux, conn),
	} {
		if err != nil {
			return nil, err
		}
	}
	return overWebsockets(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A request that doesn't name its type is one in JSON; the library would log each as an error.
		if _, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil {
			r.Header.Set("Content-Type", "application/json")
		}
		if _, websocket := r.Body.(*inbox); clientStreams[r.URL.Path] && !websocket {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			r = r.WithContext(ctx)
			r.Body = &body{r.Body, cancel}
		}
		mux.ServeHTTP(w, r)
	})), nil
}
