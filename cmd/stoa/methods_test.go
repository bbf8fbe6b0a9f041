package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

var writeMethods = flag.Bool("write-methods", false, "write testdata/methods.txt")

// TestMethods compares the methods of all gRPC services, on the ports of clients and peers,
// with the list of those that the adversary (test/adversary) tries: a new one belongs there.
func TestMethods(t *testing.T) {
	s, _ := started(t, settings(t, t.TempDir()))
	var all []string
	for port, on := range map[string]*grpc.Server{"client": s.ports.rpc.Server, "peer": s.ports.peerRPC} {
		for service, info := range on.GetServiceInfo() {
			for _, m := range info.Methods {
				all = append(all, fmt.Sprintf("%s /%s/%s\n", port, service, m.Name))
			}
		}
	}
	slices.Sort(all)
	const list = "testdata/methods.txt"
	if *writeMethods {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(list, []byte(strings.Join(all, "")), 0o644))
	}
	known, err := os.ReadFile(list)
	require.NoError(t, err)
	require.Equal(t, string(known), strings.Join(all, ""), "go test ./cmd/stoa -run TestMethods -write-methods, then go test ./test/adversary")
}
