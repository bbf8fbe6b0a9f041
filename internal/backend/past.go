package backend

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/stoa-kv/stoa/internal/store"
)

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

// copying lets one snapshot at a time have the name of the copy.
func (s *boltSnapshot) copy() (engine, error) {
	s.f.copying.Lock()
	defer s.f.copying.Unlock()
	path := s.f.path + ".copy"
	defer os.Remove(path) //nolint:errcheck // the next copy writes over it
	if err := copyTo(path, s); err != nil {
		return nil, err
	}
	return openFile(path, Options{NoSync: true, Logger: s.f.lg})
}

func copyTo(path string, s *boltSnapshot) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = s.WriteTo(to)
	return errors.Join(err, to.Close())
}

func (s memSnapshot) copy() (engine, error) { return &mem{data: s.data.copy()}, nil }
