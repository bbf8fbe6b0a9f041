package oracle

import (
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/protobuf/proto"
)

// memory is etcd's storage of users and roles, without a file.
type memory struct {
	enabled  bool
	revision uint64
	users    map[string]*authpb.User
	roles    map[string]*authpb.Role
}

func newMemory() *memory {
	return &memory{users: map[string]*authpb.User{}, roles: map[string]*authpb.Role{}}
}

func (m *memory) CreateAuthBuckets()            {}
func (m *memory) ForceCommit()                  {}
func (m *memory) ReadTx() auth.AuthReadTx       { return tx{m} }
func (m *memory) BatchTx() auth.AuthBatchTx     { return tx{m} }
func (m *memory) GetUser(n string) *authpb.User { return tx{m}.UnsafeGetUser(n) }
func (m *memory) GetAllUsers() []*authpb.User   { return tx{m}.UnsafeGetAllUsers() }
func (m *memory) GetRole(n string) *authpb.Role { return tx{m}.UnsafeGetRole(n) }
func (m *memory) GetAllRoles() []*authpb.Role   { return tx{m}.UnsafeGetAllRoles() }

type tx struct{ *memory }

func (tx) Lock()    {}
func (tx) Unlock()  {}
func (tx) RLock()   {}
func (tx) RUnlock() {}

func (t tx) UnsafeReadAuthEnabled() bool       { return t.enabled }
func (t tx) UnsafeReadAuthRevision() uint64    { return t.revision }
func (t tx) UnsafeSaveAuthEnabled(on bool)     { t.enabled = on }
func (t tx) UnsafeSaveAuthRevision(rev uint64) { t.revision = rev }

// A reader gets copies, as from a file.
func (t tx) UnsafeGetUser(name string) *authpb.User {
	if u := t.users[name]; u != nil {
		return proto.Clone(u).(*authpb.User)
	}
	return nil
}

func (t tx) UnsafeGetRole(name string) *authpb.Role {
	if r := t.roles[name]; r != nil {
		return proto.Clone(r).(*authpb.Role)
	}
	return nil
}

func (t tx) UnsafeGetAllUsers() (all []*authpb.User) {
	for _, name := range slices.Sorted(maps.Keys(t.users)) {
		all = append(all, t.UnsafeGetUser(name))
	}
	return all
}

func (t tx) UnsafeGetAllRoles() (all []*authpb.Role) {
	for _, name := range slices.Sorted(maps.Keys(t.roles)) {
		all = append(all, t.UnsafeGetRole(name))
	}
	return all
}

func (t tx) UnsafePutUser(u *authpb.User) { t.users[string(u.Name)] = proto.Clone(u).(*authpb.User) }
func (t tx) UnsafePutRole(r *authpb.Role) { t.roles[string(r.Name)] = proto.Clone(r).(*authpb.Role) }
func (t tx) UnsafeDeleteUser(name string) { delete(t.users, name) }
func (t tx) UnsafeDeleteRole(name string) { delete(t.roles, name) }
