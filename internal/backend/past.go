package backend

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/stoa-kv/stoa/internal/store"
)

// Beyond reports whether some partition has come beyond a revision in this snapshot.
func (s *Snapshot) Beyond(rev int64) bool {
	return slices.ContainsFunc(s.Positions, func(p Position) bool { return p.Rev > rev })
}

// Past opens a snapshot of what this one had at a revision, for a backup: without the changes of keys after it. It
// is of a copy beside the file, from which no server can go on, since its logs are behind that revision. The
// revision is not below the last compaction.
func (s *Snapshot) Past(rev int64) (past *Snapshot, err error) {
	eng, err := s.eng.copy()
	if err != nil {
		return nil, fmt.Errorf("copy of a snapshot: %w", err)
	}
	err = eng.update(func(w writer) error { return forgetAfter(w, s.Positions, rev) })
	if err == nil {
		past, err = openSnapshot(eng, "the copy of a snapshot")
	}
	if err != nil {
		return nil, errors.Join(err, eng.close())
	}
	past.own = eng
	return past, nil
}

// forgetAfter removes the changes after a revision, and what the file says of them.
func forgetAfter(w writer, ps []Position, rev int64) error {
	var later [][]byte
	w.ascend(bucketKey, appendRev(nil, store.Revision{Main: rev + 1}, false), func(k, _ []byte) bool {
		later = append(later, bytes.Clone(k))
		return true
	})
	for _, k := range later {
		if err := w.remove(bucketKey, k); err != nil {
			return err
		}
	}
	for p, at := range ps {
		at.Rev = min(at.Rev, rev)
		if err := writePosition(w, p, at); err != nil {
			return err
		}
	}
	return w.remove(bucketStoa, stoaSums)
}

// copy makes the copy under a name of its own: another file, from before one that was received took its place, may be copied
// at the same time. It has the name until it is open.
func (s *boltSnapshot) copy() (engine, error) {
	to, err := os.CreateTemp(filepath.Dir(s.f.path), filepath.Base(s.f.path)+copied+"*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(to.Name()) //nolint:errcheck // RemoveRests does
	_, err = s.WriteTo(to)
	if err := errors.Join(err, to.Close()); err != nil {
		return nil, err
	}
	return openFile(to.Name(), Options{NoSync: true, Logger: s.f.lg})
}

func (s memSnapshot) copy() (engine, error) { return &mem{data: s.data.copy()}, nil }
