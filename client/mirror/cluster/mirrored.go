package cluster

import (
	"net/url"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Reserved is the prefix of the keys that mirrors keep for themselves in their targets. They
// are never mirrored.
const Reserved = "/stoa/"

// Mirrored names the keys of a source that a mirror has: those with a prefix, but for those
// with longer ones. They have the same names in both clusters.
type Mirrored struct {
	Prefix string
	Except []string
}

// Span is the range of the keys.
func (m Mirrored) Span() Span {
	s := Prefix(m.Prefix, m.Except...)
	if strings.HasPrefix(Reserved, m.Prefix) {
		s.Except = append(slices.Clone(s.Except), Reserved)
	}
	return s
}

// MarkKey is the key of the mark in the target.
func (m Mirrored) MarkKey() string { return Reserved + "mirror/mark/" + m.Prefix }

// CandidatesKey is the prefix of the keys by which one of several executors is elected in the
// target.
func (m Mirrored) CandidatesKey() string {
	return Reserved + "mirror/candidates/" + url.PathEscape(m.Prefix)
}

// String describes the keys, the same for equal ones: it is what a mark says of them.
func (m Mirrored) String() string {
	except := slices.Clone(m.Except)
	slices.Sort(except)
	s := "stamped " + quote(m.Prefix)
	for _, e := range slices.Compact(except) {
		s += " but " + quote(e)
	}
	return s
}

// quote keeps printable characters as they are: a mark is JSON, which quotes again.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// NewMirror returns both sides of a mirror whose values have stamps.
func NewMirror(home, target *clientv3.Client, m Mirrored) (*Source, *Target) {
	return NewStampedSource(home, m.Span()), NewTarget(target, m.Span(), m.MarkKey())
}
