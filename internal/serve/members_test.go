package serve

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

type noMembers struct{}

func (noMembers) ClusterID() uint64      { return 0 }
func (noMembers) Members() []*pb.Member  { return nil }
func (noMembers) ClusterVersion() string { return "" }

func TestFetchMembers(t *testing.T) {
	plain := httptest.NewServer(PeerPages(fakeMembers{}))
	defer plain.Close()
	secure := httptest.NewTLSServer(PeerPages(fakeMembers{}))
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	local := &http.Server{Handler: PeerPages(fakeMembers{})}
	go local.Serve(l)
	defer local.Close()

	for _, urls := range [][]string{{plain.URL}, {plain.URL + "/"}, {"http://127.0.0.1:1", plain.URL}, {secure.URL}, {"unix://" + socket}} {
		cluster, list, err := FetchMembers(t.Context(), &tls.Config{RootCAs: roots}, urls)
		require.NoError(t, err, "%v", urls)
		require.EqualValues(t, 0xabc, cluster)
		require.Len(t, list, 2)
		for i, m := range (fakeMembers{}).Members() {
			require.True(t, proto.Equal(m, list[i]), "%v", list[i])
		}
	}

	starting := httptest.NewServer(PeerPages(noMembers{}))
	defer starting.Close()
	_, list, err := FetchMembers(t.Context(), nil, []string{starting.URL})
	require.NoError(t, err)
	require.Empty(t, list)

	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, _, err = FetchMembers(t.Context(), nil, []string{other.URL, "http://127.0.0.1:1"})
	require.ErrorContains(t, err, "fetching the members from "+other.URL+": the server answers 404")
	require.ErrorContains(t, err, "fetching the members from http://127.0.0.1:1: ")
}
