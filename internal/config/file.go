package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// readFile takes the settings from a YAML (or JSON) file with etcd's keys.
func (d *declaration) readFile(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading --config-file: %w", err)
	}
	if err := d.readYAML(b); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	d.cfg.File = path
	d.note(false, "loaded server configuration, other configuration command line flags and environment variables will be ignored if provided", "config-file", path)
	return nil
}

func (d *declaration) readYAML(b []byte) error {
	doc, err := yaml.YAMLToJSON(b)
	if err != nil {
		return err
	}
	top, err := object(doc)
	if err != nil {
		return fmt.Errorf("want a map of settings: %w", err)
	}
	return d.setAll("", top)
}

// setAll sets what one map of the file says; section is the map's own key.
// Unknown keys are ignored, as in etcd.
func (d *declaration) setAll(section string, m map[string]json.RawMessage) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		where := key
		if section != "" {
			where = section + "." + key
		}
		if section == "" && d.isSection(key) {
			inner, err := object(m[key])
			if err != nil {
				return fmt.Errorf("invalid %s: %w", key, err)
			}
			if err := d.setAll(key, inner); err != nil {
				return err
			}
			continue
		}
		s := d.byKey(section, key)
		if s == nil {
			d.note(true, "unknown key in the configuration file", where, "")
			continue
		}
		if err := s.value.setYAML(m[key]); err != nil {
			return fmt.Errorf("invalid value for %s: %w", where, err)
		}
		d.given[s.name] = true
	}
	return nil
}

// byKey compares without case, as the JSON decoder behind etcd's YAML does.
func (d *declaration) byKey(section, key string) *setting {
	for _, s := range d.settings {
		if s.key != "" && s.section == section && strings.EqualFold(s.key, key) {
			return s
		}
	}
	return nil
}

func (d *declaration) isSection(key string) bool {
	return slices.ContainsFunc(d.settings, func(s *setting) bool { return s.section != "" && s.section == key })
}

func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return m, nil
	}
	err := json.Unmarshal(raw, &m)
	return m, err
}
