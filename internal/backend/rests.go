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

// isRest tells what is behind the name of the file.
func isRest(behind string) bool {
	number, isCopy := strings.CutPrefix(behind, copied)
	isCopy = isCopy && number != "" && strings.Trim(number, "0123456789") == ""
	return behind == made || behind == defragmented || behind == arrived || isCopy
}

// RemoveRests removes what a server that was killed has left beside the file at path, each perhaps as large as that. Nothing
// of it is needed, and nobody may be writing it. What an operator has put there has another name, or is no file.
func RemoveRests(path string) error {
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for rests beside %s: %w", path, err)
	}
	for _, e := range list {
		rest, beside := strings.CutPrefix(e.Name(), filepath.Base(path))
		if !beside || !isRest(rest) || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(path + rest); err != nil {
			return fmt.Errorf("removing a rest: %w", err)
		}
	}
	return nil
}
