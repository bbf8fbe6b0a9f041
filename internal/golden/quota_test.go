//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// Users, roles and quotas came with level 2.
const levelOfQuotas = 2

// authCommands are users and roles, with permissions in force.
func authCommands(t *testing.T) (list []command.Command) {
	perm := &authpb.Permission{PermType: authpb.READWRITE, Key: []byte("/a/"), RangeEnd: []byte("/a0")}
	for _, r := range []*pb.InternalRaftRequest{
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "root", HashedPassword: "cm9vdA=="}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}},
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "a", Options: &authpb.UserAddOptions{NoPassword: true}}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "a"}},
		{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "a", Perm: perm}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "a", Role: "a"}},
		{AuthEnable: &pb.AuthEnableRequest{}},
	} {
		list = append(list, command.Command{Kind: command.Auth, Body: marshal(t, r)})
	}
	return list
}

func quotaCommands(t *testing.T) (list []command.Command) {
	for _, c := range []*stoapb.QuotaChange{
		{Role: "a", MaxBytes: 1000, MaxKeys: 10, MaxWatchers: 300, MaxRate: 100_000},
		{Prefix: []byte("/a/\xff"), MaxRate: auth.MaxRate},
		{Prefix: []byte("/b/"), MaxKeys: 3},
		{Prefix: []byte("/gone/"), MaxWatchers: 1},
		{Prefix: []byte("/gone/"), Remove: true},
	} {
		list = append(list, command.Command{Kind: command.Quota, User: auth.Own, Body: marshal(t, c)})
	}
	return list
}

func quotaLines(t *testing.T) string {
	var list []named
	for i, c := range append(authCommands(t), quotaCommands(t)...) {
		e := command.Entry{Origin: 7, Seq: uint64(i), Commands: []command.Command{c}}
		list = append(list, named{fmt.Sprintf("%d %v", i, c.Kind), e.AppendTo(nil)})
	}
	return lines(list)
}

// fillQuotas makes a state with quotas, of which one is used up.
func (s *state) fillQuotas() {
	for _, c := range append(authCommands(s.t), quotaCommands(s.t)...) {
		s.run(s.machine.Placement().All(), c)
	}
	put := func(key string) {
		m := &pb.PutRequest{Key: []byte(key), Value: []byte("v")}
		s.run(s.machine.Placement().All(), command.Command{Kind: command.Put, User: auth.Own, Body: marshal(s.t, m)})
	}
	for i := range 3 {
		put(fmt.Sprintf("/a/%d/k", i))
		put(fmt.Sprintf("/b/%d/k", i))
	}
}

// quotasUsed is what a machine knows of its quotas.
func (s *state) quotasUsed() string {
	var text strings.Builder
	for _, u := range s.machine.QuotasUsed() {
		limits := func(l auth.Limits) string { return fmt.Sprintf("%d bytes, %d keys", l.Bytes, l.Keys) }
		fmt.Fprintf(&text, "%v: at most %s, %d watches, %d requests/s; used %s; granted", &u.Quota, limits(u.Limits), u.Watchers, u.Rate, limits(u.Used))
		for _, g := range u.Granted {
			fmt.Fprintf(&text, " (%s)", limits(g))
		}
		text.WriteString("\n")
	}
	return text.String()
}

// eachWithQuotas runs a test for the files of each level that has quotas.
func eachWithQuotas(t *testing.T, test func(t *testing.T, read func(name string) []byte)) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		if level >= levelOfQuotas {
			test(t, read)
		}
	})
}

func TestQuotaCommands(t *testing.T) {
	eachWithQuotas(t, func(t *testing.T, read func(string) []byte) {
		was := string(read("quotas.txt"))
		require.Equal(t, was, quotaLines(t), "the log's encoding never changes")
		for line := range strings.Lines(was) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
			b, err := hex.DecodeString(text)
			require.NoError(t, err)
			e, err := command.Decode(b)
			require.NoError(t, err, name)
			require.Equal(t, b, e.AppendTo(nil), name)
			if e.Commands[0].Kind == command.Quota {
				c, err := auth.DecodeQuotaChange(e.Commands[0].Body)
				require.NoError(t, err)
				require.Equal(t, e.Commands[0].Body, c.AppendTo(nil), "as it is stored")
			}
		}
	})
}

// The quotas of a file are in force with what is used and granted of them.
func TestAFileWithQuotas(t *testing.T) {
	eachWithQuotas(t, func(t *testing.T, read func(string) []byte) {
		s := openGolden(t, unpack(t, read("file-quotas.db.gz")))
		require.True(t, s.machine.Auth().Enabled)
		require.NotNil(t, s.machine.Auth().Rates())
		require.NotNil(t, s.machine.Auth().Watches())
		require.Equal(t, string(read("file-quotas-used.txt")), s.quotasUsed())
		m := &pb.PutRequest{Key: []byte("/b/more"), Value: []byte("v")}
		r := s.try(s.machine.Placement().All(), command.Command{Kind: command.Put, User: auth.Own, Body: marshal(t, m)})
		require.ErrorIs(t, r.Err, fault.QuotaExceeded)
	})
}
