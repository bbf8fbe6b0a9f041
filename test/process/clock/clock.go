package clock

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Env is the environment variable that names a program's clock, a file that [Make] or [Set] has made.
const Env = "STOA_TEST_CLOCK"

// Make makes a clock that shows the machine's time. One that exists stays as it is.
func Make(file string) error {
	return change(file, func(*atomic.Int64) {})
}

// Set has a clock be ahead of the machine's, or, with a negative duration, behind it.
func Set(file string, ahead time.Duration) error {
	return change(file, func(c *atomic.Int64) { c.Store(int64(ahead)) })
}

// Run has a clock go faster by a part of the time for so long, in small steps, or slower with a negative
// one: with 1 it goes twice as fast, with -1 it stands.
func Run(file string, faster float64, length time.Duration) error {
	return change(file, func(c *atomic.Int64) {
		from := c.Load()
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			past := min(time.Since(began), length)
			c.Store(from + int64(faster*float64(past)))
			if past == length {
				return
			}
		}
	})
}

// change maps a clock into memory, so that it changes as one.
func change(file string, how func(*atomic.Int64)) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("opening a clock: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		return fmt.Errorf("making a clock: %w", err)
	}
	page, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping a clock: %w", err)
	}
	how((*atomic.Int64)(unsafe.Pointer(&page[0])))
	return syscall.Munmap(page)
}
