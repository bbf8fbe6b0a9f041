package auth

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/protofield"
)

// Stored is the content of etcd's three buckets. What etcd has no field for (the numbers of
// users, and [State.Since]) is in fields and keys that etcd keeps or passes over.
type Stored struct {
	Auth, Users, Roles map[string][]byte
}

// Keys of etcd's bucket auth, and ours.
const (
	keyEnabled  = "authEnabled"
	keyRevision = "authRevision"
	keySince    = "stoaSince"
	keyQuota    = "stoaQuota" // the beginning of the keys of quotas
)

// Fields of authpb.User that only stoa writes.
const (
	fieldID protowire.Number = iota + 1000
	fieldCredential
)

// Stored is the state as it is kept.
func (s *State) Stored() Stored { return s.StoredSince(New()) }

// StoredSince is what differs in the users and roles of an earlier state, and all of the rest. Those that are
// gone have the value nil.
func (s *State) StoredSince(earlier *State) Stored {
	out := Stored{
		Auth: map[string][]byte{}, Users: changed(earlier.users, s.users, (*User).encoded), Roles: changed(earlier.roles, s.roles, (*Role).encoded),
	}
	enabled := byte(0)
	if s.Enabled {
		enabled = 1
	}
	out.Auth[keyEnabled] = []byte{enabled}
	out.Auth[keyRevision] = binary.BigEndian.AppendUint64(nil, s.Revision)
	out.Auth[keySince] = binary.BigEndian.AppendUint64(nil, s.Since)
	s.storeQuotas(out.Auth)
	return out
}

// changed compares by identity: users and roles never change.
func changed[V any](before, now map[string]*V, encoded func(*V) []byte) map[string][]byte {
	out := map[string][]byte{}
	for name, v := range now {
		if before[name] != v {
			out[name] = encoded(v)
		}
	}
	for name := range before {
		if now[name] == nil {
			out[name] = nil
		}
	}
	return out
}

func (r *Role) encoded() []byte {
	return marshal(&authpb.Role{Name: []byte(r.Name), KeyPermission: r.Permissions})
}

func (u *User) encoded() []byte {
	b := marshal(&authpb.User{
		Name: []byte(u.Name), Password: u.Password, Roles: u.Roles, Options: &authpb.UserAddOptions{NoPassword: u.NoPassword},
	})
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldID, protowire.VarintType), u.ID)
	return protowire.AppendVarint(protowire.AppendTag(b, fieldCredential, protowire.VarintType), u.Credential)
}

func marshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("auth: encoding %T: %v", m, err)) // names come from decoded messages
	}
	return b
}

// Load reads a state. With complete false it is one that etcd has written, at least in
// part: users have been given numbers, in the order of their names, and all of the state has
// to be stored before anything in it changes.
func Load(in Stored) (s *State, complete bool, err error) {
	s, complete = New(), true
	s.Enabled = len(in.Auth[keyEnabled]) == 1 && in.Auth[keyEnabled][0] == 1
	s.Revision = max(firstRevision, number(in.Auth[keyRevision]))
	s.Since = number(in.Auth[keySince])
	for name, b := range in.Roles {
		r := new(authpb.Role)
		if err := proto.Unmarshal(b, r); err != nil {
			return nil, false, fmt.Errorf("role %q: %w", name, err)
		}
		s.roles[name] = &Role{Name: name, Permissions: r.GetKeyPermission()}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Users)) {
		u, err := decodeUser(name, in.Users[name])
		if err != nil {
			return nil, false, err
		}
		complete = complete && u.ID != 0
		if u.ID == 0 {
			u.Credential = 0
		}
		s.users[name] = u
	}
	if err := s.loadQuotas(in.Auth); err != nil {
		return nil, false, err
	}
	s.number()
	s.indexed()
	if !complete {
		s.Since = s.Revision
	}
	return s, complete, nil
}

func decodeUser(name string, b []byte) (*User, error) {
	m := new(authpb.User)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("user %q: %w", name, err)
	}
	u := &User{Name: name, Roles: m.GetRoles(), Password: m.GetPassword(), NoPassword: m.GetOptions().GetNoPassword()}
	slices.Sort(u.Roles)
	for f, err := range protofield.All(m.ProtoReflect().GetUnknown()) {
		if err != nil {
			return nil, fmt.Errorf("user %q: %w", name, err)
		}
		if f.Type != protowire.VarintType {
			continue
		}
		switch f.Number {
		case fieldID:
			u.ID = f.Varint
		case fieldCredential:
			u.Credential = f.Varint
		}
	}
	return u, nil
}

// number gives the users that have none numbers that no other user has or will have: each
// user took a revision when it was added, so there are enough at or below the present one.
func (s *State) number() {
	taken := map[uint64]bool{}
	for _, u := range s.users {
		taken[u.ID], taken[u.Credential] = true, true
	}
	free := uint64(firstRevision)
	for _, name := range slices.Sorted(maps.Keys(s.users)) {
		u := s.users[name]
		if u.ID == 0 {
			for free++; taken[free]; free++ {
			}
			u.ID, u.Credential = free, free
		}
		s.put(u)
	}
	s.Revision = max(s.Revision, free)
}

func number(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
