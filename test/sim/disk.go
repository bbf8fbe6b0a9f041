package sim

import (
	"time"

	"github.com/stoa-kv/stoa/internal/wal"
)

// disk writes the log for all groups of one life, as the node's does: records
// that wait when a sync is done go into the next one.
type disk struct {
	l       *life
	core    *core
	records []wal.Record
	durable []func()
	busy    bool
	// finishWrite ends the write that is under way.
	finishWrite func()
}

// Append implements replica.Disk.
func (d *disk) Append(_ int, records []wal.Record, durable func()) {
	d.records = append(d.records, records...)
	if durable != nil {
		d.durable = append(d.durable, durable)
	}
	d.start()
}

func (d *disk) start() {
	if d.busy || d.core.ended {
		return
	}
	d.busy = true
	d.core.after(d.l.between(time.Microsecond, 40*time.Microsecond), "write", 0, d.write)
}

func (d *disk) write() {
	records, durable := d.records, d.durable
	d.records, d.durable = nil, nil
	if len(records) > 0 {
		if err := d.core.wal.Append(records); err != nil {
			d.l.fatal(err)
			return
		}
	}
	finish := func() { d.sync(durable) }
	d.finishWrite = finish
	d.core.after(d.l.sv.syncTime(), "sync", uint64(len(records)), func() {
		if d.finishWrite != nil {
			finish()
		}
	})
}

func (d *disk) sync(durable []func()) {
	d.finishWrite = nil
	if err := d.core.wal.Sync(); err != nil {
		d.l.fatal(err)
		return
	}
	for _, done := range durable {
		done()
	}
	d.busy = false
	if len(d.records) > 0 || len(d.durable) > 0 {
		d.start()
	}
}

// syncTime is how long the disk takes now.
func (s *server) syncTime() time.Duration {
	loop := s.c.loop
	d := loop.between(50*time.Microsecond, 2*time.Millisecond)
	if loop.chance(50) {
		d += loop.between(0, 20*time.Millisecond)
	}
	return d + s.slowDisk
}

// finish ends a write in progress; those waiting behind it are lost, as when
// node stops its loops.
func (d *disk) finish() {
	if d.finishWrite != nil {
		d.finishWrite()
	}
}

// drain writes those, as node does for the core that goes on with the logs.
func (d *disk) drain() error {
	records := d.records
	d.records, d.durable = nil, nil
	if err := d.core.wal.Append(records); err != nil {
		return err
	}
	return d.core.wal.Sync()
}
