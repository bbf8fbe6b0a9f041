package recovery

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/version"
)

// epochsBlob is the name under which the file has the epochs of each partition. Files of earlier
// versions lack it.
const epochsBlob = "epochs"

// ReadEpochs returns the epochs of each partition, by the file.
func ReadEpochs(meta *backend.Meta) ([]command.Epochs, error) {
	epochs := make([]command.Epochs, meta.Identity.Partitions)
	blob, written := meta.Blobs[epochsBlob]
	if !written {
		return epochs, nil
	}
	if err := json.Unmarshal(blob, &epochs); err != nil {
		return nil, fmt.Errorf("epochs: %w: %w", backend.ErrDamaged, err)
	}
	if len(epochs) != meta.Identity.Partitions {
		return nil, fmt.Errorf("epochs: %w: those of %d partitions in a file of %d", backend.ErrDamaged, len(epochs), meta.Identity.Partitions)
	}
	return epochs, nil
}

// levelOfEpochs is the level from which on a file has epochs. One of the level before has
// none: a server of an earlier release wouldn't keep them as they are, and a later one would
// rely on them.
const levelOfEpochs version.Level = 2

// StoredEpochs are the epochs that the file of a cluster at a level has.
func StoredEpochs(now []command.Epochs, level version.Level) []command.Epochs {
	if level < levelOfEpochs {
		return make([]command.Epochs, len(now))
	}
	return now
}

// CutEpochs adds the epochs to what a cut writes, if they aren't those that the file has.
func CutEpochs(sys *backend.System, file, now []command.Epochs) {
	if slices.EqualFunc(file, now, command.Epochs.Equal) {
		return
	}
	if sys.Blobs == nil {
		sys.Blobs = map[string][]byte{}
	}
	blob, err := json.Marshal(now)
	if err != nil {
		panic(fmt.Sprintf("recovery: encoding numbers as JSON: %v", err)) // can't happen
	}
	sys.Blobs[epochsBlob] = blob
}
