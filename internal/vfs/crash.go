package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Restart returns the file system as a restarted process on the same machine
// finds it: everything written is there, no lock is held. The old Mem and its
// files return ErrCrashed.
func (m *Mem) Restart() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashed = true
	next := NewMem()
	next.dirs = m.dirs
	return next
}

// Crash returns the disk's content after a power failure: everything durable,
// and of the rest a part chosen by rng. The old Mem and its files return
// ErrCrashed, though Crash may be called again for another outcome.
// Everything runs in sorted order: a crash depends on nothing but the seed.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashed = true
	next := NewMem()
	for _, name := range slices.Sorted(maps.Keys(m.dirs)) {
		names := m.dirs[name].crash(rng)
		for _, base := range slices.Sorted(maps.Keys(names)) {
			names[base] = names[base].crash(rng)
		}
		next.dirs[name] = &memDir{names: names, durable: maps.Clone(names)}
	}
	return next
}

// crash returns the names that survive a power failure: those that are
// durable, with none, all or any combination of the changes since.
func (d *memDir) crash(rng *rand.Rand) map[string]*memInode {
	const none, all = 0, 1
	names := maps.Clone(d.durable)
	keep := rng.IntN(3)
	for _, c := range d.pending {
		if keep == all || keep != none && rng.IntN(2) == 0 {
			c.apply(names)
		}
	}
	return names
}

// crash returns the inode as it is after a power failure.
func (n *memInode) crash(rng *rand.Rand) *memInode {
	d := n.durable()
	if len(n.undo) == 0 && n.size == n.durableSize {
		return d
	}
	if rng.IntN(2) == 0 {
		d.size = n.size
	} else {
		d.size = n.durableSize + rng.Int64N(n.size-n.durableSize+1)
	}
	switch rng.IntN(4) {
	case 0: // none of it
	case 1:
		n.keepSome(d, rng, func() sectorFate { return sectorKept })
	case 2:
		n.keepPrefix(d, rng)
	case 3:
		n.keepSome(d, rng, func() sectorFate { return sectorFate(rng.IntN(5)) })
	}
	d.durableSize = d.size
	d.undo, d.writes = map[int64][]byte{}, nil
	return d
}

// keepPrefix keeps the first writes in full and the next in part, as a disk
// does that writes in order.
func (n *memInode) keepPrefix(d *memInode, rng *rand.Rand) {
	if len(n.writes) == 0 {
		return
	}
	whole := rng.IntN(len(n.writes))
	for _, w := range n.writes[:whole] {
		n.keep(d, w)
	}
	torn := n.writes[whole]
	torn.end = torn.off + rng.Int64N(torn.end-torn.off+1)
	n.keep(d, torn)
}

// keep copies n's present content of an extent into d, up to d's size.
func (n *memInode) keep(d *memInode, w extent) {
	w.end = min(w.end, d.size)
	if w.off >= w.end {
		return
	}
	b := make([]byte, w.end-w.off)
	n.readAt(b, w.off)
	d.writeAt(b, w.off)
}

type sectorFate int

const (
	sectorLost sectorFate = iota
	sectorGarbled
	sectorKept // and all above
)

// keepSome decides for each sector that was written, as a disk does that
// writes in any order. A garbled sector is so only where it differs from
// what was durable (invariant 3).
func (n *memInode) keepSome(d *memInode, rng *rand.Rand, fate func() sectorFate) {
	for _, i := range slices.Sorted(maps.Keys(n.undo)) {
		for off := i * pageSize; off < (i+1)*pageSize; off += sectorSize {
			w := extent{off, off + sectorSize}
			f := fate()
			if f == sectorLost {
				continue
			}
			before := make([]byte, sectorSize)
			d.readAt(before, off)
			n.keep(d, w)
			if f == sectorGarbled {
				garble(d, w, before, rng)
			}
		}
	}
}

func garble(d *memInode, w extent, before []byte, rng *rand.Rand) {
	b := make([]byte, max(0, min(w.end, d.size)-w.off))
	d.readAt(b, w.off)
	for i := range b {
		if b[i] != before[i] {
			b[i] = byte(rng.Uint32())
		}
	}
	if len(b) > 0 {
		d.writeAt(b, w.off)
	}
}
