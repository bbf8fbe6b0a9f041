package config

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"strings"
)

// Founder is a member of a cluster that is being bootstrapped.
type Founder struct {
	ID       uint64
	Name     string
	PeerURLs []string
}

// Founders returns the founding members in the order of their IDs, and the ID
// of their cluster. Each of them computes the same from its own settings, with
// etcd's formula: an operator who moves from etcd with the same command line
// finds the IDs that the dashboards know.
func (c *Config) Founders() (members []Founder, cluster uint64) {
	for name, urls := range c.InitialCluster {
		sorted := slices.Sorted(slices.Values(urls.StringSlice()))
		members = append(members, Founder{
			ID:       hash([]byte(strings.Join(sorted, "") + c.InitialClusterToken)),
			Name:     name,
			PeerURLs: sorted,
		})
	}
	slices.SortFunc(members, func(a, b Founder) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	var ids []byte
	for _, m := range members {
		ids = binary.BigEndian.AppendUint64(ids, m.ID)
	}
	return members, hash(ids)
}

func hash(b []byte) uint64 {
	sum := sha1.Sum(b)
	return binary.BigEndian.Uint64(sum[:8])
}
