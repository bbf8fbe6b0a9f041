package host

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// selection is what a read of a range asks for beside the keys.
type selection struct {
	limit               int64
	keysOnly, countOnly bool
	target              clientv3.SortTarget
	order               clientv3.SortOrder
	minMod, maxMod      int64
	minNew, maxNew      int64 // revisions of the creation
	at                  int64 // the revision that is read; 0: the newest
}

// drawSelection draws one around a revision; often it is none.
func drawSelection(rng *rand.Rand, now int64) (s selection) {
	near := func() int64 { return max(1, now-rng.Int64N(20)) }
	if rng.IntN(2) == 0 {
		return s
	}
	if rng.IntN(2) == 0 {
		s.limit = 1 + rng.Int64N(3)
	}
	if rng.IntN(2) == 0 {
		s.target = clientv3.SortTarget(rng.IntN(5))
		s.order = []clientv3.SortOrder{clientv3.SortAscend, clientv3.SortDescend}[rng.IntN(2)]
	}
	switch rng.IntN(10) {
	case 0, 1, 2:
		s.keysOnly = true
	case 7:
		s.countOnly = true
	case 3:
		s.minMod = near()
	case 4:
		s.maxMod = near()
	case 5:
		s.minNew = near()
	case 6:
		s.maxNew = near()
	}
	if rng.IntN(3) == 0 {
		s.at = near() + rng.Int64N(3)
	}
	return s
}

func (s *selection) options() (opts []clientv3.OpOption) {
	add := func(asked bool, opt clientv3.OpOption) {
		if asked {
			opts = append(opts, opt)
		}
	}
	add(s.limit > 0, clientv3.WithLimit(s.limit))
	add(s.keysOnly, clientv3.WithKeysOnly())
	add(s.countOnly, clientv3.WithCountOnly())
	add(s.order != clientv3.SortNone, clientv3.WithSort(s.target, s.order))
	add(s.minMod > 0, clientv3.WithMinModRev(s.minMod))
	add(s.maxMod > 0, clientv3.WithMaxModRev(s.maxMod))
	add(s.minNew > 0, clientv3.WithMinCreateRev(s.minNew))
	add(s.maxNew > 0, clientv3.WithMaxCreateRev(s.maxNew))
	add(s.at > 0, clientv3.WithRev(s.at))
	return opts
}

func (s *selection) passes(kv *mvccpb.KeyValue) bool {
	return kv.ModRevision >= s.minMod && (s.maxMod == 0 || kv.ModRevision <= s.maxMod) &&
		kv.CreateRevision >= s.minNew && (s.maxNew == 0 || kv.CreateRevision <= s.maxNew)
}

func (s *selection) compare(a, b *mvccpb.KeyValue) int {
	if s.order == clientv3.SortDescend {
		a, b = b, a
	}
	switch s.target {
	case clientv3.SortByVersion:
		return cmp.Compare(a.Version, b.Version)
	case clientv3.SortByCreateRevision:
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	case clientv3.SortByModRevision:
		return cmp.Compare(a.ModRevision, b.ModRevision)
	case clientv3.SortByValue:
		return bytes.Compare(a.Value, b.Value)
	}
	return bytes.Compare(a.Key, b.Key)
}

// shown is a key-value as it is shown. Of keys alone no leases are known, unless the values had to be looked at.
func (s *selection) shown(kv *mvccpb.KeyValue) *mvccpb.KeyValue {
	if s.keysOnly {
		kv = proto.CloneOf(kv)
		kv.Value = nil
		if s.order == clientv3.SortNone || s.target != clientv3.SortByValue {
			kv.Lease = 0
		}
	}
	return kv
}

// differs tells how an answer is another than that of a range with some keys, which are in order; "" if it isn't.
// Keys that the order doesn't tell apart may come in any.
func (s *selection) differs(got *pb.RangeResponse, all []*mvccpb.KeyValue) string {
	want := slices.DeleteFunc(slices.Clone(all), func(kv *mvccpb.KeyValue) bool { return !s.passes(kv) || s.countOnly })
	slices.SortStableFunc(want, s.compare)
	some, more := want, false
	if more = s.limit > 0 && int64(len(want)) > s.limit; more {
		some = want[:s.limit]
	}
	if got == nil {
		return "it has no answer"
	}
	if got.Count != int64(len(all)) || got.More != more || len(got.Kvs) != len(some) {
		return fmt.Sprintf("it shows %d keys of %d, more: %v, and not %d of %d, more: %v", len(got.Kvs), got.Count, got.More, len(some), len(all), more)
	}
	for i, kv := range got.Kvs {
		at := slices.IndexFunc(want, func(one *mvccpb.KeyValue) bool { return proto.Equal(s.shown(one), kv) })
		if at < 0 || s.compare(want[at], some[i]) != 0 {
			return fmt.Sprintf("it shows %v, and not %v", got.Kvs, some)
		}
		if slices.ContainsFunc(got.Kvs[:i], func(one *mvccpb.KeyValue) bool { return string(one.Key) == string(kv.Key) }) {
			return fmt.Sprintf("it shows %q twice", kv.Key)
		}
	}
	return ""
}

// needsRevision tells whether an answer is one of a revision, so of one cluster.
func (s *selection) needsRevision() bool {
	by := s.order != clientv3.SortNone && (s.target == clientv3.SortByModRevision || s.target == clientv3.SortByCreateRevision)
	return by || s.at > 0 || s.minMod+s.maxMod+s.minNew+s.maxNew > 0 || s.keysOnly && s.target == clientv3.SortByValue
}

func (s selection) String() string {
	var parts []string
	add := func(asked bool, format string, args ...any) {
		if asked {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(s.limit > 0, "%d at most", s.limit)
	add(s.keysOnly, "keys only")
	add(s.countOnly, "count only")
	add(s.order != clientv3.SortNone, "by %d, order %d", s.target, s.order)
	add(s.minMod+s.maxMod+s.minNew+s.maxNew > 0, "of %d to %d, new at %d to %d", s.minMod, s.maxMod, s.minNew, s.maxNew)
	add(s.at > 0, "as of %d", s.at)
	return strings.Join(parts, ", ")
}
