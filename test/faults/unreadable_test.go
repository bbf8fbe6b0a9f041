//go:build faults

package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// A running server whose file can't be read exits and names the record, whether
// it was read for a client or for the log; the others have the data and keep
// serving. A failed read in a transaction doesn't reach any server's state: the
// remaining ones agree.
func TestUnreadableHistory(t *testing.T) {
	requireStoa(t)
	key, old := []byte("/disk/a/key"), []byte("the first value, which only history has")
	for name, ask := range map[string]func(ctx context.Context, kv pb.KVClient, rev int64) error{
		"a read": func(ctx context.Context, kv pb.KVClient, rev int64) error {
			_, err := kv.Range(ctx, &pb.RangeRequest{Key: key, Revision: rev, Serializable: true})
			return err
		},
		"a transaction": func(ctx context.Context, kv pb.KVClient, rev int64) error {
			_, err := kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: []byte("written")}}},
				{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key, Revision: rev}}},
			}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := contextFor(t, time.Minute)
			c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
			lead := -1
			require.Eventually(t, func() bool { lead = leaderOf(ctx, c); return lead >= 0 }, 10*time.Second, 50*time.Millisecond)
			s, next := c.Servers[lead], c.Servers[(lead+1)%3]
			kv := kvOf(t, s)
			first, err := kv.Put(ctx, &pb.PutRequest{Key: key, Value: old})
			require.NoError(t, err)
			for range 100 { // until it is no longer in memory
				_, err := kv.Put(ctx, &pb.PutRequest{Key: key, Value: make([]byte, 128<<10)})
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { return damage(t, s, key, old) }, 10*time.Second, 100*time.Millisecond)

			require.Error(t, ask(ctx, kv, first.Header.Revision))
			code, err := s.Wait(15 * time.Second)
			require.NoError(t, err)
			require.NotZero(t, code)
			said := s.LogTail(1 << 20)
			require.NotContains(t, said, "goroutine ")
			said = said[strings.Index(said, "can't go on"):]
			require.NotContains(t, said[:len(said)-1], "\n", "it ends with one line")
			require.Contains(t, said, fmt.Sprintf("read revision %d.0: %s: file is damaged", first.Header.Revision, filepath.Join(s.DataDir, "member", "snap", "db")))

			// The others have everything, the write of the transaction too.
			others := kvOf(t, next)
			require.Eventually(t, func() bool {
				got, err := others.Range(ctx, &pb.RangeRequest{Key: key, Revision: first.Header.Revision})
				return err == nil && bytes.Equal(got.Kvs[0].Value, old)
			}, 20*time.Second, 100*time.Millisecond)
			got, err := others.Range(ctx, &pb.RangeRequest{Key: key})
			require.NoError(t, err)
			require.Equal(t, name == "a transaction", string(got.Kvs[0].Value) == "written")
			requireRefuses(t, s, "file is damaged", filepath.Join(s.DataDir, "member", "snap", "db"))
		})
	}
}

func kvOf(t *testing.T, s *process.Server) pb.KVClient {
	conn, err := dial(s.ClientURL)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return pb.NewKVClient(conn)
}

// damage overwrites every copy of a record in a server's file, and reports
// whether there was any.
func damage(t *testing.T, s *process.Server, key, value []byte) bool {
	path := filepath.Join(s.DataDir, "member", "snap", "db")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	head := append([]byte{0x0a, byte(len(key))}, key...) // the record begins with its key
	found := false
	for at := bytes.Index(text, value); at >= 0; {
		from := bytes.LastIndex(text[:at], head)
		require.GreaterOrEqual(t, from, 0)
		_, err := f.WriteAt([]byte{0xff}, int64(from))
		require.NoError(t, err)
		found = true
		next := bytes.Index(text[at+1:], value)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return found
}
