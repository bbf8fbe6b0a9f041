package region

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotPermitted is returned where regions can't be made.
var ErrNotPermitted = errors.New("regions need root (CAP_SYS_ADMIN, CAP_NET_ADMIN) and /dev/net/tun")

// World is some regions and the links between them.
type World struct {
	Regions []*Region
	links   [][]*Link // by the region from which they lead, and the one to which
	stop    context.CancelFunc
}

// Region is one network namespace.
type Region struct {
	Addr string // its address, from within

	namespace *os.File // nil for this program's own
	device    *os.File
}

// New makes regions each of which is the same time away from every other: oneWay there
// and oneWay back.
func New(regions int, oneWay time.Duration) (*World, error) {
	w := new(World)
	if err := w.settle(regions); err != nil {
		return nil, err
	}
	w.carry(oneWay)
	return w, nil
}

// Around is New, with the namespace of this program as one region more, the last one: what
// runs there needs no Do. The program must be alone in its namespace ([Alone]).
func Around(regions int, oneWay time.Duration) (*World, error) {
	w := new(World)
	if err := w.settle(regions); err != nil {
		return nil, err
	}
	device, err := openDevice(address(regions))
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("making a region of this program's namespace: %w", err)
	}
	w.Regions = append(w.Regions, &Region{Addr: address(regions), device: device})
	w.carry(oneWay)
	return w, nil
}

// settle makes the regions that have a namespace of their own.
func (w *World) settle(regions int) error {
	for i := range regions {
		r, err := newRegion(address(i))
		if err != nil {
			w.Close()
			return fmt.Errorf("making region %d: %w", i+1, err)
		}
		w.Regions = append(w.Regions, r)
	}
	return nil
}

func address(index int) string { return fmt.Sprintf("10.77.%d.1", index+1) }

// Close cuts all links. The namespaces end with the last process in them.
func (w *World) Close() {
	if w.stop != nil {
		w.stop()
	}
	for _, r := range w.Regions {
		r.device.Close()
		if r.namespace != nil {
			r.namespace.Close()
		}
	}
}

// Do runs a function on a thread that is in the region: the sockets that it opens and
// the processes that it starts are there.
func (r *Region) Do(f func() error) error {
	if r.namespace == nil {
		return f()
	}
	return inside(func() error { return unix.Setns(int(r.namespace.Fd()), unix.CLONE_NEWNET) }, f)
}

// Dial connects to an address from within the region.
func (r *Region) Dial(ctx context.Context, addr string) (conn net.Conn, err error) {
	err = r.Do(func() error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// inside moves a thread into another namespace by enter, runs f on it and moves
// it back.
func inside(enter, f func() error) error {
	runtime.LockOSThread()
	here, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	defer here.Close()
	if err := enter(); err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			err = fmt.Errorf("%w: %w", ErrNotPermitted, err)
		}
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	ferr := f()
	if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
		// The thread stays locked, and so ends with this goroutine.
		return errors.Join(ferr, fmt.Errorf("leaving a network namespace: %w", err))
	}
	runtime.UnlockOSThread()
	return ferr
}

// newRegion makes a namespace whose loopback and TUN device are up.
func newRegion(addr string) (*Region, error) {
	r := &Region{Addr: addr}
	err := inside(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		if r.namespace, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err != nil {
			return fmt.Errorf("opening the new namespace: %w", err)
		}
		if r.device, err = openDevice(r.Addr); err != nil {
			r.namespace.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}
