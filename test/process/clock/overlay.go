package clock

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata/wall.go
var wall []byte

// What Now of package time reads its clock with, and the line in its place.
var (
	reads   = []byte("func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n")
	instead = []byte("func Now() Time {\n\tsec, nsec, mono := wallNow()\n")
)

// Overlay writes edited sources to dir, and returns the file for go build -overlay.
func Overlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("finding Go's standard library: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return "", fmt.Errorf("reading package time: %w", err)
	}
	if bytes.Count(source, reads) != 1 {
		return "", fmt.Errorf("%s has no Now as it is known here", library)
	}
	replaced := map[string]string{}
	for name, text := range map[string][]byte{"time.go": bytes.Replace(source, reads, instead, 1), "wall.go": wall} {
		file := filepath.Join(dir, name)
		replaced[filepath.Join(library, name)] = file
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return "", fmt.Errorf("writing an edited source: %w", err)
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return overlay, nil
}
