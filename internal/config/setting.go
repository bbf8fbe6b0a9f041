package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// A setting is one name, declared once, that flags, environment and file set.
type setting struct {
	name    string
	group   string // heading in the help text
	section string // key of the enclosing map in the file, if any
	key     string // key in the file; empty if the file can't set it
	usage   string
	hidden  bool // not in the help text
	// unused settings are known from etcd and change nothing here. missing says what is not
	// done. With one of the harmless values the server does what was asked for all the same.
	unused   bool
	missing  string
	harmless []string
	value    value
}

// value parses what is given for a setting into the variable that it was made
// for.
type value interface {
	flag.Value
	setYAML(raw json.RawMessage) error // raw is the YAML value as JSON
}

// text holds any string. YAML scalars that aren't strings are taken as written,
// as etcd's YAML library does.
type text struct{ p *string }

func (v text) Set(s string) error { *v.p = s; return nil }
func (v text) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}
func (v text) setYAML(raw json.RawMessage) error {
	s, err := scalar(raw)
	if err != nil {
		return err
	}
	return v.Set(s)
}

func scalar(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	if len(raw) > 0 && (raw[0] == '{' || raw[0] == '[') {
		return "", errors.New("want one value, not a list or map")
	}
	if string(raw) == "null" {
		return "", nil
	}
	return string(raw), nil
}

type boolean struct{ p *bool }

func (v boolean) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("want true or false")
	}
	*v.p = b
	return nil
}
func (v boolean) String() string                    { return strconv.FormatBool(v.p != nil && *v.p) }
func (v boolean) IsBoolFlag() bool                  { return true }
func (v boolean) setYAML(raw json.RawMessage) error { return typed(raw, v.p, "true or false") }

// number is any of the integers that etcd's flags have; bases as in Go (0x…).
type number[T uint | uint32 | uint64 | int | int64] struct{ p *T }

func (v number[T]) Set(s string) error {
	var zero T
	if zero-1 > 0 { // unsigned
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil || uint64(T(n)) != n {
			return errors.New("want a whole number that is not negative")
		}
		*v.p = T(n)
		return nil
	}
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil || int64(T(n)) != n {
		return errors.New("want a whole number")
	}
	*v.p = T(n)
	return nil
}
func (v number[T]) String() string {
	if v.p == nil {
		return "0"
	}
	return fmt.Sprint(*v.p)
}
func (v number[T]) setYAML(raw json.RawMessage) error { return typed(raw, v.p, "a whole number") }

// duration is written as 1m30s in a flag, and as a number of nanoseconds in a
// file (etcd's files can't say it in any other way).
type duration struct{ p *time.Duration }

func (v duration) Set(s string) error {
	t, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a duration such as 300ms or 1m30s")
	}
	*v.p = t
	return nil
}
func (v duration) String() string {
	if v.p == nil {
		return "0s"
	}
	return v.p.String()
}
func (v duration) setYAML(raw json.RawMessage) error {
	return typed(raw, v.p, "a whole number of nanoseconds")
}

// milliseconds is etcd's other way to give a time.
type milliseconds struct{ p *time.Duration }

func (v milliseconds) Set(s string) error {
	var n uint32
	if err := (number[uint32]{&n}).Set(s); err != nil {
		return errors.New("want a whole number of milliseconds")
	}
	*v.p = time.Duration(n) * time.Millisecond
	return nil
}
func (v milliseconds) String() string {
	if v.p == nil {
		return "0"
	}
	return strconv.FormatInt(v.p.Milliseconds(), 10)
}
func (v milliseconds) setYAML(raw json.RawMessage) error {
	n := uint32(v.p.Milliseconds())
	if err := typed(raw, &n, "a whole number of milliseconds"); err != nil {
		return err
	}
	*v.p = time.Duration(n) * time.Millisecond
	return nil
}

// choice is one of a few words; the first is the default.
type choice struct {
	p     *string
	valid []string
}

func (v choice) Set(s string) error {
	if !slices.Contains(v.valid, s) {
		return fmt.Errorf("invalid value %q: want one of %s", s, strings.Join(v.valid, ", ")) // it begins as etcd's
	}
	*v.p = s
	return nil
}
func (v choice) String() string { return text{v.p}.String() }
func (v choice) setYAML(raw json.RawMessage) error {
	s, err := scalar(raw)
	if err != nil || s == "" { // etcd's files may leave a choice empty
		return err
	}
	return v.Set(s)
}

// list is comma-separated, in the order given.
type list struct{ p *[]string }

func (v list) Set(s string) error { *v.p = strings.Split(s, ","); return nil }
func (v list) String() string {
	if v.p == nil {
		return ""
	}
	return strings.Join(*v.p, ",")
}
func (v list) setYAML(raw json.RawMessage) error { return yamlList(raw, v.p, v.Set) }

// set is comma-separated, sorted, each once.
type set struct{ p *[]string }

func (v set) Set(s string) error {
	*v.p = strings.Split(s, ",")
	slices.Sort(*v.p)
	*v.p = slices.Compact(*v.p)
	return nil
}
func (v set) String() string                    { return list(v).String() }
func (v set) setYAML(raw json.RawMessage) error { return yamlList(raw, v.p, v.Set) }

// yamlList takes a YAML list, or the comma-separated string of the flag.
func yamlList(raw json.RawMessage, p *[]string, set func(string) error) error {
	if len(raw) > 0 && raw[0] == '[' {
		return typed(raw, p, "a list of strings")
	}
	s, err := scalar(raw)
	if err != nil || s == "" {
		return err
	}
	return set(s)
}

// urls is comma-separated, sorted, each once. An empty string leaves what was
// there, as in etcd.
type urls struct{ p *[]url.URL }

func (v urls) Set(s string) error {
	if s == "" {
		return nil
	}
	parsed, err := types.NewURLs(strings.Split(s, ","))
	if err != nil {
		return err
	}
	*v.p = slices.CompactFunc(parsed, func(a, b url.URL) bool { return a.String() == b.String() })
	return nil
}
func (v urls) String() string {
	if v.p == nil {
		return ""
	}
	return types.URLs(*v.p).String()
}
func (v urls) setYAML(raw json.RawMessage) error {
	s, err := scalar(raw)
	if err != nil {
		return err
	}
	return v.Set(s)
}

// nothing takes anything, with or without a value: names that etcd itself has
// long since stopped to listen to.
type nothing struct{}

func (nothing) Set(string) error              { return nil }
func (nothing) String() string                { return "" }
func (nothing) IsBoolFlag() bool              { return true }
func (nothing) setYAML(json.RawMessage) error { return nil }

func typed(raw json.RawMessage, p any, want string) error {
	if err := json.Unmarshal(raw, p); err != nil {
		return fmt.Errorf("want %s, not %s", want, raw)
	}
	return nil
}
