package recovery

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/raftlog"
)

// groupsBlob is the name under which the file has the groups. A file without it is of a
// cluster whose number of partitions has never changed.
const groupsBlob = "groups"

// ReadGroups returns the groups that a file has.
func ReadGroups(meta *backend.Meta) (*membership.Groups, error) {
	blob, changed := meta.Blobs[groupsBlob]
	if !changed {
		return membership.FirstGroups(meta.Identity.Partitions), nil
	}
	g := new(membership.Groups)
	err := json.Unmarshal(blob, g)
	if err == nil {
		err = g.Check(meta.Identity.Partitions)
	}
	if err != nil {
		return nil, fmt.Errorf("groups: %w: %w", backend.ErrDamaged, err)
	}
	return g, nil
}

// CutGroups adds the groups to what a cut writes, if they aren't those that the file has.
func CutGroups(sys *backend.System, file, now *membership.Groups) {
	if now == file {
		return
	}
	if sys.Blobs == nil {
		sys.Blobs = map[string][]byte{}
	}
	sys.Blobs[groupsBlob] = encodeGroups(now)
}

func encodeGroups(g *membership.Groups) []byte {
	blob, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("recovery: encoding numbers as JSON: %v", err)) // can't happen
	}
	return blob
}

// Resize brings a file at the end of a generation of groups into the next one, in one
// transaction; any other file stays as it is. What it makes follows from the file alone, so it
// is the same on all servers. The groups that go on do so from where they are, and new ones
// begin as those of a new cluster do, with the configuration of group 0. All stores begin at
// the highest revision that any has reached, so that none is given out again.
func Resize(b *backend.Backend) error {
	meta, err := b.Meta()
	if err != nil {
		return err
	}
	now, err := ReadGroups(&meta)
	if err != nil || now.Next == 0 {
		return err
	}
	members, err := ReadMembership(&meta, membership.Of())
	if err != nil {
		return err
	}
	epochs, err := ReadEpochs(&meta)
	if err != nil {
		return err
	}
	next := now.Following()
	n := len(next.Born)
	revision := int64(1)
	for _, p := range meta.Positions {
		revision = max(revision, p.Rev)
	}
	to := backend.Resized{Partitions: n, Blobs: map[string][]byte{groupsBlob: encodeGroups(next)}}
	for p := range n {
		at := backend.Position{Index: raftlog.Bootstrap.Index, Term: raftlog.Bootstrap.Term}
		if p < len(meta.Positions) {
			at = meta.Positions[p]
		}
		at.Rev = revision
		to.Positions = append(to.Positions, at)
	}
	for p := len(epochs); p < n; p++ {
		members.Configs = append(members.Configs, members.Configs[0])
		epochs = append(epochs, command.Epochs{})
	}
	members.Configs = members.Configs[:n]
	var sys backend.System
	if _, changed := meta.Blobs[membershipBlob]; changed { // else all are as in the beginning
		members.Cut(&sys)
	}
	CutEpochs(&sys, nil, epochs[:n])
	maps.Copy(to.Blobs, sys.Blobs)
	apply.ResizeSessions(to.Blobs, meta.Blobs, len(meta.Positions), n)
	return b.Resize(to)
}
