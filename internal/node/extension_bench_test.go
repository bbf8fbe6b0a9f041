package node

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// transferSource moves one from /a/x to /b/x.
const transferSource = `return {
	scope = { "/a/", "/b/" },
	operations = { { op = "put", key = "/transfer" } },
	put = function()
		local a, b = tonumber(get("/a/x") or "0"), tonumber(get("/b/x") or "0")
		put("/a/x", a - 1)
		put("/b/x", b + 1)
	end,
}`

// BenchmarkExtension measures calls of an extension without gRPC: with one partition,
// with the keys of its scope brought together, and with a scope that had to stay in
// two partitions, so that each call is a rendezvous.
func BenchmarkExtension(b *testing.B) {
	for _, c := range []struct {
		name       string
		partitions int
		spread     bool
	}{{"P=1", 1, false}, {"P=2/together", 2, false}, {"P=2/spread", 2, true}} {
		b.Run(c.name, func(b *testing.B) {
			n := benchNode(b, c.partitions)
			register := func(name, source string) {
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: []byte("/em/" + name), Value: []byte(source)})
				require.NoError(b, err)
			}
			if c.spread {
				separate(b, n, register)
			}
			register("transfer", transferSource)
			parallel(b, func() error {
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: []byte("/transfer")})
				return err
			})
		})
	}
}

// separate gives /a/ and /b/ to extensions in different partitions, where a
// third one can't move them from.
func separate(b *testing.B, n *Node, register func(name, source string)) {
	b.Helper()
	settled := map[int]bool{}
	for i, dir := range []string{"/a/", "/b/"} {
		for try := 0; ; try++ {
			name := fmt.Sprintf("holder-%d-%d", i, try)
			register(name, fmt.Sprintf(`return { scope = { %q }, operations = { { op = "put", prefix = "/none/" } }, put = function() end }`, dir))
			at := n.current().machine.Placement().Partition([]byte(dir + "x"))
			if !settled[at] {
				settled[at] = true
				break
			}
			_, err := n.DeleteRange(context.Background(), &pb.DeleteRangeRequest{Key: []byte("/em/" + name)})
			require.NoError(b, err)
		}
	}
}

// BenchmarkBesideExtensions measures puts and gets of clients that use no extension,
// with none and with 100 registered (EZK §6.2).
func BenchmarkBesideExtensions(b *testing.B) {
	for _, registered := range []int{0, 100} {
		b.Run(fmt.Sprintf("put/%d", registered), func(b *testing.B) {
			n := benchNode(b, 1)
			registerMany(b, n, registered)
			value := make([]byte, 256)
			parallel(b, func() error {
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: benchKey(int64(b.N)), Value: value})
				return err
			})
		})
		b.Run(fmt.Sprintf("get/%d", registered), func(b *testing.B) {
			n := benchNode(b, 1)
			registerMany(b, n, registered)
			parallel(b, func() error {
				_, err := n.Range(context.Background(), &pb.RangeRequest{Key: benchKey(1)})
				return err
			})
		})
	}
}

func registerMany(b *testing.B, n *Node, count int) {
	for i := range count {
		_, err := n.Put(context.Background(), &pb.PutRequest{Key: fmt.Appendf(nil, "/em/e%d", i), Value: fmt.Appendf(nil, `return {
			scope = { "/e/%[1]d/" },
			operations = { { op = "read", prefix = "/e/%[1]d/" }, { op = "put", prefix = "/e/%[1]d/" } },
			events = { { event = "created", prefix = "/e/%[1]d/" }, { event = "deleted", prefix = "/e/%[1]d/" } },
			read = function() end, put = function() end, event = function() end,
		}`, i)})
		require.NoError(b, err)
	}
}
