package queue

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Keys are those of the queue of a set of clusters (client/commands/DESIGN.md).
type Keys struct{ prefix string }

// Of returns the keys of a set, and the names of its clusters in their order: the queue is in
// the first.
func Of(clusters []string) (k Keys, set []string) {
	set = slices.Clone(clusters)
	slices.Sort(set)
	set = slices.Compact(set)
	escaped := make([]string, len(set))
	for i, name := range set {
		escaped[i] = url.PathEscape(name)
	}
	return Keys{"/stoa/queue/" + strings.Join(escaped, ",") + "/"}, set
}

// Mark is the key of the mark, in each cluster.
func (k Keys) Mark() string { return k.prefix + "mark" }

// Done is the key of the record of what is done.
func (k Keys) Done() string { return k.prefix + "done" }

func (k Keys) candidates() string { return k.prefix + "candidates" }

func (k Keys) client(name string) string { return k.prefix + "s/" + name }

// entries is the prefix of all entries.
func (k Keys) entries() string { return k.prefix + "e/" }

// entry is that of a client's batch. Keys are in the order of their numbers.
func (k Keys) entry(client string, number int64) string {
	return fmt.Sprintf("%s%s/%016d", k.entries(), client, number)
}

// parse is the client and the number of an entry.
func (k Keys) parse(key string) (client string, number int64, err error) {
	client, digits, ok := strings.Cut(strings.TrimPrefix(key, k.entries()), "/")
	if ok {
		number, err = strconv.ParseInt(digits, 10, 64)
	}
	if !ok || err != nil {
		return "", 0, fmt.Errorf("%q is no entry of a queue", key)
	}
	return client, number, nil
}
