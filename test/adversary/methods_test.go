package adversary

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	_ "github.com/stoa-kv/stoa/internal/lockpb"
)

// method is one that a server has.
type method struct {
	name       string // as "/package.Service/Method"
	in, out    protoreflect.MessageType
	manyIn     bool
	manyOut    bool
	onPeerPort bool
	path       string // at the gateway
}

// endless are the methods whose streams don't end when the client has sent everything.
var endless = map[string]bool{
	"/etcdserverpb.Watch/Watch":                                 true,
	"/grpc.health.v1.Health/Watch":                              true,
	"/v3electionpb.Election/Observe":                            true,
	"/stoa.peer.v1.Peer/Link":                                   true,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": true,
}

// methods are all of a server. A service whose messages this program doesn't know fails the
// test: its package has to be imported above.
func methods(t *testing.T) (all []method) {
	t.Helper()
	list, err := os.ReadFile("../../cmd/stoa/testdata/methods.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(list)) {
		port, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		service, short, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
		require.True(t, ok, line)
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		require.NoError(t, err, "import the package that has %s", service)
		md := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(short))
		require.NotNil(t, md, name)
		in, err := protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName())
		require.NoError(t, err)
		out, err := protoregistry.GlobalTypes.FindMessageByName(md.Output().FullName())
		require.NoError(t, err)
		all = append(all, method{name, in, out, md.IsStreamingClient(), md.IsStreamingServer(), port == "peer", pathOf(md)})
	}
	require.NotEmpty(t, all)
	return all
}

// requests are the messages of one call.
func (m *method) requests(g generator) (all []proto.Message) {
	n := 1
	if m.manyIn {
		n += g.IntN(3)
	}
	for range n {
		r := m.in.New()
		g.message(r, 3)
		all = append(all, r.Interface())
	}
	return all
}
