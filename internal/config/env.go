package config

import (
	"flag"
	"fmt"
	"strings"
)

// environment is what the variables STOA_* and ETCD_* say.
type environment struct {
	vars  map[string]string // by full name
	order []string
}

// prefixes, the stronger one last.
var prefixes = []string{"ETCD_", "STOA_"}

func readEnvironment(environ []string) *environment {
	e := &environment{vars: map[string]string{}}
	for _, kv := range environ {
		name, v, ok := strings.Cut(kv, "=")
		if !ok || !(strings.HasPrefix(name, prefixes[0]) || strings.HasPrefix(name, prefixes[1])) {
			continue
		}
		if _, twice := e.vars[name]; !twice {
			e.order = append(e.order, name)
		}
		e.vars[name] = v
	}
	return e
}

func variable(prefix, setting string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

func (e *environment) configFile() string {
	for i := len(prefixes) - 1; i >= 0; i-- {
		if v := e.vars[variable(prefixes[i], "config-file")]; v != "" {
			return v
		}
	}
	return ""
}

// apply sets what no flag has set. A variable beside a flag is refused, as in
// etcd, even if both say the same: one of them would be obeyed by chance.
func (e *environment) apply(d *declaration, fs *flag.FlagSet) error {
	byFlag := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { byFlag[f.Name] = true })
	known := map[string]bool{}
	for _, prefix := range prefixes {
		known[variable(prefix, "config-file")] = true
		for _, s := range d.settings {
			name := variable(prefix, s.name)
			known[name] = true
			v, there := e.vars[name]
			if there && byFlag[s.name] {
				return fmt.Errorf("conflicting environment variable %s is shadowed by the flag --%s: unset the variable or drop the flag", name, s.name)
			}
			if v == "" {
				continue
			}
			if err := fs.Set(s.name, v); err != nil {
				return fmt.Errorf("invalid value %q for environment variable %s: %w", v, name, err)
			}
			d.note(false, "recognized and used environment variable", name, v)
		}
	}
	for _, name := range e.order {
		if !known[name] {
			d.note(true, "unrecognized environment variable", name, "") // it may be a password: that of a sidecar, or of an image's scripts
		}
	}
	return nil
}

func (d *declaration) note(warn bool, text, setting, value string) {
	d.cfg.Notices = append(d.cfg.Notices, Notice{Warn: warn, Text: text, Setting: setting, Value: value})
}
