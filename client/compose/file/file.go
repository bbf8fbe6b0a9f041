// Package file reads compositions from files in YAML: those of `stoactl --compose` and `stoa sidecar
// --compose`. docs/composition.md explains them; examples/compose.yaml has every setting.
package file

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"sigs.k8s.io/yaml"

	"github.com/stoa-kv/stoa/client/compose"
)

type composition struct {
	Clusters map[string]json.RawMessage `json:"clusters"`
	Routes   []json.RawMessage          `json:"routes"`
	Local    string                     `json:"local"`
}

type clusterEntry struct {
	Endpoints  []string `json:"endpoints"`
	Near       []string `json:"near"`
	Kind       string   `json:"kind"`
	CACert     string   `json:"cacert"`
	Cert       string   `json:"cert"`
	Key        string   `json:"key"`
	ServerName string   `json:"server-name"`
	SkipVerify bool     `json:"insecure-skip-tls-verify"`
	Username   string   `json:"username"`
	Password   string   `json:"password"`
}

type routeEntry struct {
	Prefix       *string  `json:"prefix"`
	Cluster      string   `json:"cluster"`
	Strip        bool     `json:"strip"`
	Transactions bool     `json:"transactions"`
	Mirrors      []string `json:"mirrors"`
}

// Read makes a configuration of a file, with ranges over several clusters. lg is for what happens in
// the composition, too. Errors name the file and the field.
func Read(path string, lg *zap.Logger) (compose.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return compose.Config{}, fmt.Errorf("reading the file of --compose: %w", err)
	}
	cfg, err := parse(text, filepath.Dir(path), lg)
	if err != nil {
		return compose.Config{}, fmt.Errorf("composition %s: %w", path, err)
	}
	return cfg, nil
}

// parse takes names of further files as relative to dir.
func parse(text []byte, dir string, lg *zap.Logger) (compose.Config, error) {
	cfg := compose.Config{Clusters: map[string]compose.Cluster{}, SpanRanges: true, Logger: lg}
	doc, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return cfg, err
	}
	var f composition
	if err := decodeEntry(doc, "", &f); err != nil {
		return cfg, err
	}
	if len(f.Clusters) == 0 {
		return cfg, errors.New("clusters: at least one is needed")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Clusters)) {
		where := "clusters." + name
		var c clusterEntry
		if err := decodeEntry(f.Clusters[name], where, &c); err != nil {
			return cfg, err
		}
		if cfg.Clusters[name], err = c.cluster(dir, lg); err != nil {
			return cfg, fmt.Errorf("%s.%w", where, err)
		}
	}
	if len(f.Routes) == 0 {
		return cfg, errors.New(`routes: at least one is needed (prefix: "" is for all keys)`)
	}
	for i, raw := range f.Routes {
		where := fmt.Sprintf("routes[%d]", i)
		var r routeEntry
		if err := decodeEntry(raw, where, &r); err != nil {
			return cfg, err
		}
		route, err := r.route(cfg)
		if err != nil {
			return cfg, fmt.Errorf("%s.%w", where, err)
		}
		cfg.Routes = append(cfg.Routes, route)
	}
	if cfg.Local = f.Local; cfg.Local != "" {
		if _, ok := cfg.Clusters[cfg.Local]; !ok {
			return cfg, unknownCluster("local", cfg.Local, cfg)
		}
	}
	return cfg, nil
}

// cluster checks an entry. Errors begin with the field's name.
func (c *clusterEntry) cluster(dir string, lg *zap.Logger) (compose.Cluster, error) {
	kinds := map[string]compose.Kind{"": compose.Auto, "auto": compose.Auto, "stoa": compose.Stoa, "etcd": compose.Etcd}
	kind, known := kinds[c.Kind]
	switch {
	case len(c.Endpoints) == 0:
		return compose.Cluster{}, errors.New("endpoints: at least one is needed")
	case slices.Contains(c.Endpoints, ""):
		return compose.Cluster{}, errors.New("endpoints: one is empty")
	case slices.Contains(c.Near, ""):
		return compose.Cluster{}, errors.New("near: one is empty")
	case !known:
		return compose.Cluster{}, fmt.Errorf("kind: %q is neither auto nor stoa nor etcd", c.Kind)
	case c.Cert != "" && c.Key == "":
		return compose.Cluster{}, errors.New("key: missing, but there is a cert")
	case c.Cert == "" && c.Key != "":
		return compose.Cluster{}, errors.New("cert: missing, but there is a key")
	}
	cl := compose.Cluster{Endpoints: c.Endpoints, Near: c.Near, Kind: kind, Username: c.Username, Password: c.Password}
	secure := &clientv3.SecureConfig{
		ServerName: c.ServerName, InsecureSkipVerify: c.SkipVerify,
		// Without a scheme, TLS is what has files.
		InsecureTransport: !slices.ContainsFunc(c.Endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") }),
	}
	for _, f := range []struct {
		field, file string
		to          *string
	}{{"cacert", c.CACert, &secure.Cacert}, {"cert", c.Cert, &secure.Cert}, {"key", c.Key, &secure.Key}} {
		if f.file == "" {
			continue
		}
		if *f.to = f.file; !filepath.IsAbs(f.file) {
			*f.to = filepath.Join(dir, f.file)
		}
		text, err := os.ReadFile(*f.to)
		if err == nil && f.field == "cacert" && !x509.NewCertPool().AppendCertsFromPEM(text) {
			err = fmt.Errorf("%s holds no certificate", *f.to)
		}
		if err != nil {
			return cl, fmt.Errorf("%s: %w", f.field, err)
		}
	}
	cfg, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{Secure: secure}, lg)
	if err != nil {
		return cl, fmt.Errorf("cert, key: %w", err)
	}
	cl.TLS = cfg.TLS
	return cl, nil
}

// route checks an entry. Errors begin with the field's name.
func (r *routeEntry) route(cfg compose.Config) (compose.Route, error) {
	if r.Prefix == nil {
		return compose.Route{}, errors.New(`prefix: missing ("" is for all keys)`)
	}
	if slices.ContainsFunc(cfg.Routes, func(o compose.Route) bool { return o.Prefix == *r.Prefix }) {
		return compose.Route{}, fmt.Errorf("prefix: there is a route for %q already", *r.Prefix)
	}
	if _, ok := cfg.Clusters[r.Cluster]; !ok {
		return compose.Route{}, unknownCluster("cluster", r.Cluster, cfg)
	}
	for _, name := range r.Mirrors {
		if _, ok := cfg.Clusters[name]; !ok {
			return compose.Route{}, unknownCluster("mirrors", name, cfg)
		}
	}
	return compose.Route{Prefix: *r.Prefix, Cluster: r.Cluster, Strip: r.Strip, Mirrors: r.Mirrors, Transactions: r.Transactions}, nil
}

func unknownCluster(field, name string, cfg compose.Config) error {
	return fmt.Errorf("%s: there is none named %q, only %s", field, name, strings.Join(slices.Sorted(maps.Keys(cfg.Clusters)), ", "))
}

// decodeEntry reads one map of the file; where names it in errors.
func decodeEntry(raw []byte, where string, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		wants := map[string]string{"slice": "a list", "string": "text", "bool": "true or false", "map": "a map", "struct": "a map"}
		err = fmt.Errorf("want %s, found %s", wants[wrong.Type.Kind().String()], wrong.Value)
		where = strings.Trim(where+"."+wrong.Field, ".")
	default:
		err = errors.New(strings.TrimPrefix(err.Error(), "json: ")) // unknown field "…"
	}
	if where == "" {
		return err
	}
	return fmt.Errorf("%s: %w", where, err)
}
