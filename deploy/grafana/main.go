package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// dashboards are all, by their files.
var dashboards = map[string]func() *dashboard{
	"stoa-cluster.json":    cluster,
	"stoa-partitions.json": partitions,
	"stoa-extensions.json": extensions,
	"stoa-sidecars.json":   sidecars,
}

func main() {
	dir := "deploy/grafana"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	for name, of := range dashboards {
		if err := os.WriteFile(filepath.Join(dir, name), render(of()), 0o644); err != nil {
			fmt.Fprintf(os.Stderr, "writing a dashboard: %v\n", err)
			os.Exit(1)
		}
	}
}

// render is the file of a dashboard.
func render(d *dashboard) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		panic(err) // it has no values that can't be encoded
	}
	return b.Bytes()
}
