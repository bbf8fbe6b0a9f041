package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// What is written beside the file at a path has its name and one of these behind it, until it is complete or not needed any more.
const (
	made         = ".new"
	defragmented = ".defrag"
	arrived      = ".received"
	copied       = ".copy" // and a number
)

// RemoveRests removes what a server that was killed has left beside the file at path, each perhaps as large as that. Nothing
// of it is needed, and nobody may be writing it.
func RemoveRests(path string) error {
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for rests beside %s: %w", path, err)
	}
	for _, e := range list {
		rest, beside := strings.CutPrefix(e.Name(), filepath.Base(path))
		if !beside || rest != made && rest != defragmented && rest != arrived && !strings.HasPrefix(rest, copied) {
			continue
		}
		if err := os.Remove(path + rest); err != nil {
			return fmt.Errorf("removing a rest: %w", err)
		}
	}
	return nil
}
