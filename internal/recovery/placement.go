package recovery

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/placement"
)

// placementBlob is the name under which the file has the map. A file without it
// is of a cluster in which keys have never moved.
const placementBlob = "placement"

// Placement is the partition map of the file's keys; at the end of a generation of groups, that of
// the next.
func Placement(meta *backend.Meta) (*placement.Map, error) {
	b, moved := meta.Blobs[placementBlob]
	if !moved {
		return placement.New(meta.Identity.Partitions), nil
	}
	m, err := placement.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("partition map: %w", err)
	}
	now, err := ReadGroups(meta)
	if err != nil {
		return nil, err
	}
	if want := cmp.Or(now.Next, meta.Identity.Partitions); m.Partitions() != want {
		return nil, fmt.Errorf("partition map: a map of %d partitions in a file of %d", m.Partitions(), want)
	}
	return m, nil
}

// CutPlacement adds the map to what a cut writes, if it isn't the one that the file
// has. now is that of the cut, so it fits the keys. A map of many rules takes
// milliseconds to encode, so this is called after the stores were unlocked.
func CutPlacement(sys *backend.System, file, now *placement.Map) {
	if now == file {
		return
	}
	if sys.Blobs == nil {
		sys.Blobs = map[string][]byte{}
	}
	maps.Copy(sys.Blobs, PlacementBlob(now))
}

// PlacementBlob is the map as the file has it.
func PlacementBlob(m *placement.Map) map[string][]byte {
	return map[string][]byte{placementBlob: m.Encode()}
}
