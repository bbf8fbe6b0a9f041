package auth

import (
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
)

// Root is the name of the user, and of the role, that may do everything.
const Root = "root"

// Own is the credential of the servers' own commands: they may do everything. It is that of
// no user, since revision 1 is that of a state without any.
const Own = firstRevision

const firstRevision = 1

// State is who may do what.
type State struct {
	Enabled bool
	// Revision counts the changes, from 1.
	Revision uint64
	// Since is the revision at which authentication was disabled last, or the data taken
	// over from etcd; 0: never. Tokens that name an earlier revision are void.
	Since uint64

	users        map[string]*User
	roles        map[string]*Role
	byCredential map[uint64]*User

	quotas []Quota // in order
	// Of the quotas, while they are in force.
	index          *Index
	rates, watches *Reach
}

// New returns the state of a new cluster: no users, no roles, not enabled.
func New() *State {
	return &State{Revision: firstRevision, users: map[string]*User{}, roles: map[string]*Role{}, byCredential: map[uint64]*User{}}
}

// User is a user with its merged permissions. It never changes. A nil one may do everything.
type User struct {
	Name string
	// ID is the revision at which the user was added, Credential that at which its
	// password was set.
	ID, Credential uint64
	Roles          []string // in order
	Password       []byte   // the bcrypt hash
	NoPassword     bool     // authenticates by certificate only

	root        bool
	read, write spans
}

// IsRoot reports whether the user has the role root.
func (u *User) IsRoot() bool { return u == nil || u.root }

// Role is a role with its permissions as they were granted. It never changes.
type Role struct {
	Name        string
	Permissions []*authpb.Permission // by key
}

// User returns a user by name, or nil.
func (s *State) User(name string) *User { return s.users[name] }

// ByCredential returns the user who has had this password since that revision, or nil.
func (s *State) ByCredential(c uint64) *User { return s.byCredential[c] }

// Role returns a role, or nil.
func (s *State) Role(name string) *Role { return s.roles[name] }

// Empty reports whether there are no users, no roles and no quotas. Then nothing is enforced, either.
func (s *State) Empty() bool {
	return !s.Enabled && len(s.users) == 0 && len(s.roles) == 0 && len(s.quotas) == 0
}

// Users returns the names of all users in order.
func (s *State) Users() []string { return slices.Sorted(maps.Keys(s.users)) }

// Roles returns the names of all roles in order.
func (s *State) Roles() []string { return slices.Sorted(maps.Keys(s.roles)) }

// next is a copy to be changed, one revision later.
func (s *State) next() *State {
	n := *s
	n.Revision++
	n.users, n.roles, n.byCredential = maps.Clone(s.users), maps.Clone(s.roles), maps.Clone(s.byCredential)
	return &n
}

// put adds a user, or replaces one, and merges its permissions.
func (s *State) put(u *User) {
	if old := s.users[u.Name]; old != nil {
		delete(s.byCredential, old.Credential)
	}
	var read, write []span
	u.root = false
	for _, name := range u.Roles {
		u.root = u.root || name == Root
		if r := s.roles[name]; r != nil {
			read, write = r.spans(read, write)
		}
	}
	u.read, u.write = merged(read), merged(write)
	s.users[u.Name], s.byCredential[u.Credential] = u, u
}

// putRole adds or replaces a role, and merges the permissions of its users again.
func (s *State) putRole(r *Role) {
	s.roles[r.Name] = r
	for _, u := range s.users {
		if slices.Contains(u.Roles, r.Name) {
			again := *u
			s.put(&again)
		}
	}
}

func (r *Role) spans(read, write []span) (r2, w2 []span) {
	for _, p := range r.Permissions {
		s := spanOf(p.GetKey(), p.GetRangeEnd())
		switch p.GetPermType() {
		case authpb.Permission_READWRITE:
			read, write = append(read, s), append(write, s)
		case authpb.Permission_READ:
			read = append(read, s)
		case authpb.Permission_WRITE:
			write = append(write, s)
		}
	}
	return read, write
}
