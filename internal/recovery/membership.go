package recovery

import (
	"encoding/json"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/membership"
)

// membershipBlob is the name under which the file has the part of the membership for which
// etcd's buckets have no place. A file without it is of a cluster whose members have never
// changed.
const membershipBlob = "membership"

// Membership is the list of members and the configuration of each group, of one cut.
type Membership struct {
	List    *membership.List
	Configs []*membership.Config
}

type membershipJSON struct {
	Generation uint64               `json:"generation"`
	Removed    []uint64             `json:"removed,omitempty"`
	Groups     []*membership.Config `json:"groups"`

	Downgrading bool              `json:"downgrading,omitempty"`
	Releases    map[uint64]string `json:"releases,omitempty"`
}

// ReadMembership returns the membership in the file, or, if it has none, that of a
// cluster that begins with the list. An empty list is that of a server that joins a
// cluster and has not received anything of it.
func ReadMembership(meta *backend.Meta, begins *membership.List) (Membership, error) {
	m := Membership{List: begins}
	if len(meta.Members) > 0 {
		m.List = membership.Of(fromBackend(meta.Members)...)
	}
	m.List.Level = meta.Level
	blob, changed := meta.Blobs[membershipBlob]
	if !changed {
		for range meta.Identity.Partitions {
			m.Configs = append(m.Configs, membership.Initial(m.List))
		}
		return m, nil
	}
	var j membershipJSON
	if err := json.Unmarshal(blob, &j); err != nil {
		return m, fmt.Errorf("membership: %w: %w", backend.ErrDamaged, err)
	}
	if len(j.Groups) != meta.Identity.Partitions || slices.Contains(j.Groups, nil) {
		return m, fmt.Errorf("membership: %w: the configurations of %d groups in a file of %d", backend.ErrDamaged, len(j.Groups), meta.Identity.Partitions)
	}
	m.List.Generation, m.List.Removed, m.Configs = j.Generation, j.Removed, j.Groups
	m.List.Downgrading, m.List.Releases = j.Downgrading, j.Releases
	return m, nil
}

// Equal reports whether nothing has changed: lists and configurations are replaced, never
// changed.
func (m Membership) Equal(o Membership) bool {
	return m.List == o.List && slices.Equal(m.Configs, o.Configs)
}

// Cut adds the membership to what a cut writes. It belongs to the same cut as the
// positions of the groups (M3 of package membership).
func (m Membership) Cut(sys *backend.System) {
	sys.Members = toBackend(m.List.Members)
	sys.MembersRemoved = m.List.Removed
	sys.Level = m.List.Level
	if sys.Blobs == nil {
		sys.Blobs = map[string][]byte{}
	}
	blob, err := json.Marshal(membershipJSON{m.List.Generation, m.List.Removed, m.Configs, m.List.Downgrading, m.List.Releases})
	if err != nil {
		panic(fmt.Sprintf("recovery: encoding numbers as JSON: %v", err)) // can't happen
	}
	sys.Blobs[membershipBlob] = blob
}

func toBackend(members []*pb.Member) []backend.Member {
	var list []backend.Member
	for _, m := range members {
		list = append(list, backend.Member{
			ID: m.GetID(), Name: m.GetName(), PeerURLs: m.GetPeerURLs(), ClientURLs: m.GetClientURLs(), IsLearner: m.GetIsLearner(),
		})
	}
	return list
}

func fromBackend(members []backend.Member) []*pb.Member {
	var list []*pb.Member
	for _, m := range members {
		list = append(list, &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner})
	}
	return list
}
