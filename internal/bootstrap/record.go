package bootstrap

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// ID is a cluster's, a member's or a data directory's; hexadecimal wherever it is seen.
type ID uint64

func (id ID) String() string { return strconv.FormatUint(uint64(id), 16) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	*id = ID(v)
	return err
}

// Record is the membership record of a data directory.
type Record struct {
	Cluster ID `json:"cluster-id"`
	Member  ID `json:"member-id"`
	Data    ID `json:"data-id"`
	// Starts is how often a server has been started on this directory.
	Starts uint64 `json:"starts"`
	// Partitions is the number of partition groups that has been agreed on, 0 before.
	Partitions int `json:"partitions,omitempty"`
	// Admitted: the server may take part. Begun: its state file and its log exist.
	Admitted bool `json:"admitted"`
	Begun    bool `json:"begun"`
	// Adopted: the data had no record, so this one may lack members that were met before.
	Adopted bool `json:"adopted,omitempty"`
	// State is the checksum of the state with which the cluster begins, 0 if that is the
	// empty one. See [RestoredCluster].
	State ID `json:"state,omitempty"`
	// Token is the --initial-cluster-token of a directory with a State.
	Token string `json:"initial-cluster-token,omitempty"`
	// Joined: the cluster existed before this server, which gets its state from there.
	Joined bool `json:"joined,omitempty"`
	// Members are the members when this server was admitted: the initial ones, or those
	// of the cluster that it joined.
	Members []Member `json:"members,omitempty"`
	// Removed are the members that this one knows to have been removed. Their IDs are never
	// admitted again, and what was met of them stays in Peers.
	Removed []ID `json:"removed,omitempty"`
	// Peers are the other members that this one has met.
	Peers map[ID]Peer `json:"peers,omitempty"`
}

// Member is a member as far as a server without data has to know it.
type Member struct {
	ID       ID       `json:"id"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peer-urls"`
}

func (m Member) String() string {
	return fmt.Sprintf("%s (%s)", m.Name, strings.Join(m.PeerURLs, ","))
}

// Peer is the state in which another member was met last.
type Peer struct {
	Data   ID     `json:"data-id"`
	Starts uint64 `json:"starts"`
	Start  ID     `json:"start-id"` // the process, of those that counted Starts so far
	// Fresh: neither of the two had been admitted when they met, and they agreed on the
	// number of partitions.
	Fresh bool `json:"fresh,omitempty"`
	// Recorded: this member is in the record of the other, which it has asked before it was
	// admitted.
	Recorded bool `json:"recorded,omitempty"`
	// Recorders are the members that have the other in their records, by its
	// own answer, with their data IDs.
	Recorders map[ID]ID `json:"recorders,omitempty"`
}

func (p *Peer) equal(o *Peer) bool {
	return p.Data == o.Data && p.Starts == o.Starts && p.Start == o.Start && p.Fresh == o.Fresh &&
		p.Recorded == o.Recorded && maps.Equal(p.Recorders, o.Recorders)
}

func (r *Record) clone() Record {
	c := *r
	c.Peers = maps.Clone(r.Peers)
	return c
}
