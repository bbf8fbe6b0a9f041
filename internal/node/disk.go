package node

import (
	"runtime"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/wal"
)

// disk writes the log for all groups: records that wait when a sync is done go
// into the next one (group commit).
type disk struct {
	log     *wal.WAL
	fatal   func(error)
	metrics *metrics.Disk
	observe func(time.Duration)

	mu      sync.Mutex
	some    sync.Cond
	records []wal.Record
	durable []func()
	stopped bool
}

func newDisk(log *wal.WAL, fatal func(error), m *metrics.Disk, observe func(time.Duration)) *disk {
	d := &disk{log: log, fatal: fatal, metrics: m, observe: observe}
	d.some.L = &d.mu
	return d
}

// Append implements replica.Disk.
func (d *disk) Append(_ int, records []wal.Record, durable func()) {
	d.mu.Lock()
	d.records = append(d.records, records...)
	if durable != nil {
		d.durable = append(d.durable, durable)
	}
	d.mu.Unlock()
	d.some.Signal()
}

func (d *disk) run() {
	var records []wal.Record
	var durable []func()
	for {
		d.mu.Lock()
		for len(d.records) == 0 && len(d.durable) == 0 && !d.stopped {
			d.some.Wait()
		}
		// Goroutines that are about to add records run first: groups whose
		// clients were answered together have their next records ready
		// together, and one sync can do for all.
		d.mu.Unlock()
		runtime.Gosched()
		d.mu.Lock()
		if d.stopped {
			d.mu.Unlock()
			return
		}
		records, d.records = d.records, records[:0]
		durable, d.durable = d.durable, durable[:0]
		d.mu.Unlock()
		if err := d.write(records); err != nil {
			d.fatal(err)
			return
		}
		for _, done := range durable {
			done()
		}
		clear(records)
		clear(durable)
	}
}

func (d *disk) write(records []wal.Record) error {
	if len(records) == 0 {
		return nil
	}
	began, before := time.Now(), d.log.Written()
	if err := d.log.Append(records); err != nil {
		return err
	}
	written := time.Now()
	err := d.log.Sync()
	synced := time.Since(written)
	d.metrics.WALWrite.Observe(written.Sub(began).Seconds())
	d.metrics.WALBytes.Add(float64(d.log.Written() - before))
	d.metrics.WALFsync.Observe(synced.Seconds())
	if d.observe != nil {
		d.observe(synced)
	}
	return err
}

// drain writes what came after the last write, when run has ended and nothing more comes: the logs
// in memory have these records already. Nothing is told of it.
func (d *disk) drain() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	records := d.records
	d.records, d.durable = nil, nil
	return d.write(records)
}

func (d *disk) stop() {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.some.Broadcast()
}
