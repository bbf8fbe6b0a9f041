package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// archive is a compressed tar file, which depends on the names, modes and contents of the entries
// and on the time alone.
func archive(entries []entry, at time.Time) ([]byte, error) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: at, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("archiving %s: %w", e.name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("archiving %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archiving: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("archiving: %w", err)
	}
	return b.Bytes(), nil
}
