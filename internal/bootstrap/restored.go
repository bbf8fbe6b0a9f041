package bootstrap

import (
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RestoredCluster is the ID of a cluster that begins with a restored state. cluster is the
// ID that it would have if it began empty, state the checksum of the state. So members
// that begin with different states are of different clusters, and never take part in one.
func RestoredCluster(cluster, state ID) ID {
	b := binary.BigEndian.AppendUint64(nil, uint64(cluster))
	sum := sha1.Sum(binary.BigEndian.AppendUint64(b, uint64(state)))
	return ID(binary.BigEndian.Uint64(sum[:]))
}

// Restored makes the record of a member directory that a server has never been started on,
// and that has the state of a new cluster.
func Restored(dir string, self Self, state ID) error {
	rec := &Record{
		Cluster: self.Cluster, Member: self.Member, Data: draw(), Partitions: self.Partitions,
		State: state, Token: self.Token, Members: self.Members,
	}
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s exists already", path)
	}
	if err := save(path, rec); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Restored returns the record of a directory that was restored and whose server has not
// been admitted yet.
func (r *Registry) Restored() (Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rec == nil || r.rec.State == 0 || r.rec.Admitted {
		return Record{}, false
	}
	return r.rec.clone(), true
}

// Self is what Begin takes for a restored directory. The flags of the server don't matter.
func (r *Record) Self() Self {
	self := Self{Cluster: r.Cluster, Member: r.Member, Members: r.Members, Partitions: r.Partitions, Token: r.Token}
	var all []string
	for _, m := range r.Members {
		if m.ID == r.Member {
			self.Name = m.Name
		}
		for _, u := range m.PeerURLs {
			all = append(all, m.Name+"="+u)
		}
	}
	slices.Sort(all)
	self.InitialCluster = strings.Join(all, ",")
	return self
}
