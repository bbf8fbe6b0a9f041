// Package sync is Go's package sync with a point of package interleave in front of each operation that
// can wait. It takes that package's place in an overlay. Outside of an exploration it is the same.
package sync

import (
	"sync"

	"github.com/stoa-kv/stoa/test/interleave"
)

// What has no points: tasks don't meet there, or may not.
type (
	Locker    = sync.Locker
	Map       = sync.Map
	Pool      = sync.Pool
	WaitGroup = sync.WaitGroup
)

// Mutex is sync.Mutex.
type Mutex struct{ m sync.Mutex }

func (m *Mutex) Lock() {
	interleave.Point()
	for !m.m.TryLock() {
		if !interleave.Wait(m) {
			m.m.Lock()
			return
		}
	}
}

func (m *Mutex) TryLock() bool {
	interleave.Point()
	return m.m.TryLock()
}

func (m *Mutex) Unlock() {
	m.m.Unlock()
	interleave.Wake(m)
}

// RWMutex is sync.RWMutex: one that waits to write holds up later readers.
type RWMutex struct {
	m       sync.RWMutex
	writers int // that wait in an exploration
}

func (m *RWMutex) Lock() {
	interleave.Point()
	for !m.m.TryLock() {
		m.writers++
		waited := interleave.Wait(m)
		m.writers--
		if !waited {
			m.m.Lock()
			return
		}
	}
}

func (m *RWMutex) TryLock() bool {
	interleave.Point()
	return m.m.TryLock()
}

func (m *RWMutex) Unlock() {
	m.m.Unlock()
	interleave.Wake(m)
}

func (m *RWMutex) RLock() {
	interleave.Point()
	for m.writers > 0 || !m.m.TryRLock() {
		if !interleave.Wait(m) {
			m.m.RLock()
			return
		}
	}
}

func (m *RWMutex) TryRLock() bool {
	interleave.Point()
	return m.writers == 0 && m.m.TryRLock()
}

func (m *RWMutex) RUnlock() {
	m.m.RUnlock()
	interleave.Wake(m)
}

// Once is sync.Once.
type Once struct {
	m    Mutex
	done bool
}

func (o *Once) Do(f func()) {
	o.m.Lock()
	defer o.m.Unlock()
	if !o.done {
		defer func() { o.done = true }()
		f()
	}
}

// OnceFunc is sync.OnceFunc, but for panics.
func OnceFunc(f func()) func() {
	var once Once
	return func() { once.Do(f) }
}
