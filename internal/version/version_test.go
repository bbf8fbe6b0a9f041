package version

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/version"
)

func TestVersionsAreThoseOfTheImportedAPI(t *testing.T) {
	require.Equal(t, version.Version, Etcd)
	require.Equal(t, version.Cluster(version.Version)+".0", Cluster)
}

func TestPrintNamesBoth(t *testing.T) {
	var b bytes.Buffer
	Print(&b, "stoa")
	require.Contains(t, b.String(), "stoa Version: "+Stoa+"\netcd Version: 3.7.3\nCluster Versions: 0.1.0 to 0.7.0\nGit SHA: ")
}
