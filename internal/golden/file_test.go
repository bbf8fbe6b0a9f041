//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/recovery"
)

func stateFilesOf(level int) []string {
	list := []string{"file-fresh", "file-full", "file-moving"}
	if level >= levelOfQuotas {
		list = append(list, "file-quotas")
	}
	if level >= levelOfSlots {
		list = append(list, "file-slots")
	}
	if level >= levelOfResizing {
		list = append(list, "file-ending", "file-resized")
	}
	return list
}

const counter = `return {
  scope = { "/c/" },
  operations = { { op = "read", prefix = "/c/" } },
  read = function(request) return 1 end,
}
`

// sessionWrites are answered in each of the ways that a session can remember.
var sessionWrites = []struct {
	kind command.Kind
	m    proto.Message
}{
	{command.Put, &pb.PutRequest{Key: []byte("/a/session"), Value: []byte("first"), PrevKv: true}},
	{command.Put, &pb.PutRequest{Key: []byte("/a/session"), Value: []byte("second"), PrevKv: true}},
	{command.Txn, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("/a/k")}}}}}},
	{command.Put, &pb.PutRequest{Key: []byte("/a/session"), Lease: 404}},
	{command.DeleteRange, &pb.DeleteRangeRequest{Key: []byte("/a/none")}},
}

// fill makes the state that a file of a name has.
func (s *state) fill(name string, level int) (answers string) {
	s.system(command.MemberPublish, marshal(s.t, &pb.Member{ID: 1, Name: "one", ClientURLs: []string{"http://one:2379"}}))
	s.reach(level)
	switch name {
	case "file-fresh":
		return ""
	case "file-quotas":
		s.fillQuotas()
		return ""
	case "file-slots":
		s.fillSlots()
		return ""
	case "file-ending", "file-resized":
		s.fillEnding()
		return ""
	}
	for i := range 4 {
		s.put(fmt.Sprintf("/c/%d", i), "in the scope", 0)
		s.put(fmt.Sprintf("/c/below/%d", i), "in the scope", 0)
	}
	s.put("/em/counter", counter, 0)
	if name == "file-moving" {
		s.system(command.Move, (&command.Step{To: []byte("/c/below/0")}).AppendTo(nil))
		return ""
	}
	for s.machine.Placement().Transit() != nil {
		s.move(1, 1000)
	}
	s.change(membership.AddLearner, &pb.Member{ID: 3, PeerURLs: []string{"http://three:2380"}})
	s.change(membership.Promote, &pb.Member{ID: 3})
	s.change(membership.Remove, &pb.Member{ID: 2})
	s.change(membership.AddLearner, &pb.Member{ID: 4, PeerURLs: []string{"http://four:2380"}})
	s.request(command.LeaseGrant, &pb.LeaseGrantRequest{ID: 77, TTL: 600})
	s.system(command.LeaseCheckpoint, marshal(s.t, &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: 77, Remaining_TTL: 20}}}))
	s.put("/a/leased", "by 77", 77)
	for i := range 3 {
		s.put("/a/k", fmt.Sprint(i), 0)
		s.put("/b/k", fmt.Sprint(i), 0)
	}
	s.request(command.Compact, &pb.CompactionRequest{Revision: s.stamp - 3})
	s.request(command.DeleteRange, &pb.DeleteRangeRequest{Key: []byte("/b/k")})
	s.request(command.Txn, &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/a/txn"), Value: []byte("1")}}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/d/txn"), Value: []byte("2")}}},
	}})
	s.system(command.SessionOpen, marshal(s.t, &pb.LeaseGrantRequest{ID: 99, TTL: 60}))
	for i, w := range sessionWrites {
		answers += answered(s.t, i+1, s.once(uint64(i+1), w.kind, w.m))
	}
	s.system(command.Alarm, marshal(s.t, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: pb.AlarmType_NOSPACE}))
	return answers
}

// stateFile is a file, with the texts that say what is in it.
func stateFile(t *testing.T, level int, name string) (db []byte, texts files) {
	path := filepath.Join(t.TempDir(), "db")
	be, err := backend.Open(path, backend.Options{Identity: identity})
	require.NoError(t, err)
	s := restore(t, be)
	answers := s.fill(name, level)
	s.flush()
	if name == "file-resized" {
		require.NoError(t, recovery.Resize(be))
	}
	require.NoError(t, be.Close())
	db, err = os.ReadFile(path)
	require.NoError(t, err)
	texts = files{name + ".txt": []byte(dump(t, path))}
	if answers != "" {
		texts["sessions.txt"] = []byte(answers)
	}
	if name == "file-quotas" {
		texts[name+"-used.txt"] = []byte(s.quotasUsed())
	}
	return db, texts
}

// answered is what a session remembers of a write, as its client sees it.
func answered(t *testing.T, seq int, r apply.Result) string {
	if r.Err != nil {
		return fmt.Sprintf("%d: at %d, fault %d: %v\n", seq, r.Rev, fault.CodeOf(r.Err), r.Err)
	}
	return fmt.Sprintf("%d: at %d, %x\n", seq, r.Rev, marshal(t, r.Response))
}

// dump is all that is in a file.
func dump(t *testing.T, path string) string {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	var out strings.Builder
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(bucket []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				_, err := fmt.Fprintf(&out, "%s %q: %q\n", bucket, k, v)
				return err
			})
		})
	})
	require.NoError(t, err)
	return out.String()
}

func unpack(t *testing.T, packed []byte) (path string) {
	path = filepath.Join(t.TempDir(), "db")
	writeSparse(t, path, unzip(t, packed))
	return path
}

// writeSparse leaves out the pages of zeros, which nearly all of a small database are.
func writeSparse(t *testing.T, path string, b []byte) {
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(int64(len(b))))
	var zeros [4 << 10]byte
	for at := 0; at < len(b); at += len(zeros) {
		page := b[at:min(at+len(zeros), len(b))]
		if bytes.Equal(page, zeros[:len(page)]) {
			continue
		}
		_, err := f.WriteAt(page, int64(at))
		require.NoError(t, err)
	}
}

// openGolden recovers from a file as a server does.
func openGolden(t *testing.T, path string) *state {
	be, err := backend.Open(path, backend.Options{Identity: identity.Any()})
	require.NoError(t, err)
	require.NoError(t, recovery.Resize(be))
	t.Cleanup(func() { be.Close() })
	return restore(t, be)
}

// etcdSchema is the line with the version of etcd's schema, which comes with the release of
// etcd that a release of stoa stands in for.
const etcdSchema = `meta "storageVersion"`

func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		for _, name := range stateFilesOf(level) {
			path := unpack(t, read(name+".db.gz"))
			want := string(read(name + ".txt"))
			require.Equal(t, want, dump(t, path))
			without := func(text string) (list []string) {
				for line := range strings.Lines(text) {
					if !strings.HasPrefix(line, etcdSchema) {
						list = append(list, line)
					}
				}
				return list
			}
			_, written := stateFile(t, level, name)
			require.Equal(t, without(want), without(string(written[name+".txt"])), "%s: this program writes the same", name)
			s := openGolden(t, path)
			requireLevel(t, level, s.machine.Membership())
			require.Equal(t, "one", s.machine.Membership().Find(1).GetName())
		}
	})
}

func value(s *state, key string) string {
	return string(s.stores[s.machine.Placement().Partition([]byte(key))].Get([]byte(key)).Value())
}

func TestAFullFile(t *testing.T) {
	each(t, func(t *testing.T, _ int, read func(string) []byte) {
		s := openGolden(t, unpack(t, read("file-full.db.gz")))
		var answers strings.Builder
		for key, want := range map[string]string{"/a/leased": "by 77", "/a/k": "2", "/b/k": "", "/a/txn": "1", "/d/txn": "2", "/a/session": "second"} {
			require.Equal(t, want, value(s, key), key)
		}
		list := s.machine.Membership()
		require.EqualValues(t, []uint64{1, 3}, list.Voters())
		require.Equal(t, []uint64{2}, list.Removed)
		require.True(t, list.Find(4).GetIsLearner())
		require.True(t, membership.Settled(list, s.machine.Configurations()))
		require.True(t, s.leases.Has(77) && s.leases.Has(99))
		require.Len(t, s.machine.Alarms(), 1)
		require.NotNil(t, s.machine.Extensions().Get("counter"))
		require.NotEmpty(t, s.machine.Placement().Rules())
		require.Positive(t, s.machine.Compacted())

		// The session's writes are remembered with their answers.
		for i, w := range sessionWrites {
			answers.WriteString(answered(t, i+1, s.once(uint64(i+1), w.kind, w.m)))
		}
		require.Equal(t, string(read("sessions.txt")), answers.String())
		require.Equal(t, "second", value(s, "/a/session"))
		// The leased key ends with its lease.
		s.request(command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 77})
		require.Empty(t, value(s, "/a/leased"))
		s.flush()
	})
}

func TestAMoveGoesOn(t *testing.T) {
	each(t, func(t *testing.T, _ int, read func(string) []byte) {
		s := openGolden(t, unpack(t, read("file-moving.db.gz")))
		require.NotNil(t, s.machine.Placement().Transit())
		for s.machine.Placement().Transit() != nil {
			s.move(1, 3)
		}
		for i := range 4 {
			require.Equal(t, "in the scope", value(s, fmt.Sprintf("/c/%d", i)))
			require.Equal(t, "in the scope", value(s, fmt.Sprintf("/c/below/%d", i)))
		}
		require.Equal(t, s.machine.Placement().Partition([]byte("/c/1")), s.machine.Placement().Partition([]byte("/c/below/1")))
	})
}

func TestADamagedFile(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		for _, name := range stateFilesOf(level) {
			whole := unzip(t, read(name+".db.gz"))
			for what, b := range map[string][]byte{
				"cut": whole[:8<<12], "cut in a page": whole[:8<<12+100], "nothing": {}, "zeros": make([]byte, len(whole)),
			} {
				path := filepath.Join(t.TempDir(), "db")
				writeSparse(t, path, b)
				_, err := backend.Open(path, backend.Options{Identity: identity})
				require.ErrorContains(t, err, path, "%s, %s", name, what)
				require.ErrorIs(t, err, backend.ErrDamaged, "%s, %s", name, what)
			}
		}
	})
}
