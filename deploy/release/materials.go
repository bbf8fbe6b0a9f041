package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/internal/version"
)

// The part of CycloneDX 1.6 that is used.
type bom struct {
	Format      string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
}

// infosOf reads what the linker has noted in programs.
func infosOf(programs []string) (infos []*debug.BuildInfo, err error) {
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("reading how %s was built: %w", program, err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// materials lists the modules that the programs were built from, and Go itself.
func materials(name string, at time.Time, infos []*debug.BuildInfo) ([]byte, error) {
	modules := map[string]string{}
	for _, info := range infos {
		modules["stdlib"] = strings.TrimPrefix(info.GoVersion, "go")
		for _, m := range info.Deps {
			used := *m
			if m.Replace != nil {
				used = debug.Module{Path: m.Replace.Path, Version: m.Replace.Version}
			}
			modules[used.Path] = used.Version
		}
	}
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Components: []component{}}
	b.Metadata.Timestamp = at.Format(time.RFC3339)
	b.Metadata.Component = component{Type: "application", Ref: name, Name: name, Version: version.Stoa}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		purl := "pkg:golang/" + path + "@" + modules[path]
		b.Components = append(b.Components, component{Type: "library", Ref: purl, Name: path, Version: modules[path], PURL: purl})
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	if err := e.Encode(&b); err != nil {
		return nil, fmt.Errorf("writing the bill of materials: %w", err)
	}
	return text.Bytes(), nil
}
