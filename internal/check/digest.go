package check

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Version is that of the algorithm by which this program computes digests. Servers of two
// releases may compute different ones of the same state; only equal versions are compared.
const Version = 1

// Part is a part of the state, with a checksum of its own in a digest.
type Part int

// The parts of version 1, in their order.
const (
	Keys       Part = iota // that exist, with values, revisions and leases
	Revisions              // of each partition, and what is compacted
	Leases                 // with what is left of them
	Sessions               // the last writes of each
	Users                  // with roles, permissions and quotas
	Members                // with the cluster's version
	Placement              // slots, rules and pins
	Alarms                 // that are raised
	partsCount             // not a part
)

var partNames = [partsCount]string{"keys", "revisions", "leases", "sessions", "users", "members", "placement", "alarms"}

func (p Part) String() string { return partNames[p] }

// Digest has a checksum of each part.
type Digest [partsCount]uint64

// Differing names the parts in which two digests differ.
func (d Digest) Differing(o Digest) string {
	var names []string
	for p := range partsCount {
		if d[p] != o[p] {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, ", ")
}

// Place is where a check stands: the number of the group that is partition 0 (numbers are never
// used again), and the entry in its log. Raft gives one entry to a term and an index.
type Place struct {
	Group       uint32
	Term, Index uint64
}

// compare orders places as they are executed.
func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Group, o.Group), cmp.Compare(p.Index, o.Index), cmp.Compare(p.Term, o.Term))
}

func (p Place) String() string {
	return fmt.Sprintf("group %d, term %d, index %d", p.Group, p.Term, p.Index)
}

// Report is what a server tells the leader of a check.
type Report struct {
	Member  uint64
	Version uint64
	Place   Place
	Digest  Digest
}

// Verdict is what a majority of the voters agree on.
type Verdict struct {
	Version uint64
	Place   Place
	Digest  Digest
	Agree   []uint64 // the members, ascending
}

// Both are encoded alike: version | group | term | index | number of parts | 8 bytes for each |
// number of members | the members; numbers are unsigned varints.

// AppendTo appends the encoded report to b.
func (r *Report) AppendTo(b []byte) []byte {
	return (&Verdict{r.Version, r.Place, r.Digest, []uint64{r.Member}}).AppendTo(b)
}

// AppendTo appends the encoded verdict to b.
func (v *Verdict) AppendTo(b []byte) []byte {
	for _, n := range [...]uint64{v.Version, uint64(v.Place.Group), v.Place.Term, v.Place.Index, uint64(len(v.Digest))} {
		b = binary.AppendUvarint(b, n)
	}
	for _, sum := range v.Digest {
		b = binary.BigEndian.AppendUint64(b, sum)
	}
	b = binary.AppendUvarint(b, uint64(len(v.Agree)))
	for _, id := range v.Agree {
		b = binary.AppendUvarint(b, id)
	}
	return b
}

// ErrOtherVersion is the error of a verdict or a report by an algorithm that this program doesn't
// know: there is nothing to compare.
var ErrOtherVersion = errors.New("check: of another version")

// DecodeReport reads a report.
func DecodeReport(b []byte) (Report, error) {
	v, err := DecodeVerdict(b)
	if err == nil && len(v.Agree) != 1 {
		err = fmt.Errorf("check: a report of %d members", len(v.Agree))
	}
	if err != nil {
		return Report{}, err
	}
	return Report{v.Agree[0], v.Version, v.Place, v.Digest}, nil
}

// DecodeVerdict reads a verdict.
func DecodeVerdict(b []byte) (Verdict, error) {
	r := reader{rest: b}
	v := Verdict{Version: r.uvarint()}
	if r.failed {
		return Verdict{}, r.err(b)
	}
	if v.Version != Version {
		return Verdict{Version: v.Version}, ErrOtherVersion
	}
	group := r.uvarint()
	v.Place = Place{uint32(group), r.uvarint(), r.uvarint()}
	if r.uvarint() != uint64(partsCount) || group != uint64(v.Place.Group) {
		return Verdict{}, r.err(b)
	}
	for i := range v.Digest {
		v.Digest[i] = r.uint64()
	}
	count := r.uvarint()
	for i := uint64(0); i < count && !r.failed; i++ {
		v.Agree = append(v.Agree, r.uvarint())
	}
	if r.failed || len(r.rest) > 0 || !slices.IsSorted(v.Agree) || len(slices.Compact(slices.Clone(v.Agree))) != len(v.Agree) {
		return Verdict{}, r.err(b)
	}
	return v, nil
}

// AppendVersion appends the body of a check, the version by which digests are to be computed.
func AppendVersion(b []byte) []byte { return binary.AppendUvarint(b, Version) }

// DecodeVersion reads the body of a check.
func DecodeVersion(b []byte) (uint64, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return 0, fmt.Errorf("check: a version of %d bytes", len(b))
	}
	return v, nil
}

// reader reads from the front of rest; after an error it yields zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) err(b []byte) error { return fmt.Errorf("check: %d bytes are no verdict", len(b)) }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest, r.failed = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) uint64() uint64 {
	if len(r.rest) < 8 {
		r.rest, r.failed = nil, true
		return 0
	}
	v := binary.BigEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return v
}
