package region

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	deviceName = "stoa0"
	// mtu is about what a virtual network between machines passes in one piece.
	mtu = 32 << 10
	// queue is how many packets the kernel keeps for the device.
	queue = 10_000
)

// openDevice makes the TUN device of the namespace that the thread is in. All addresses
// 10.77.x.x but its own lie behind it.
func openDevice(addr string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	if err := configure(fd, net.ParseIP(addr).To4()); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: %w", ErrNotPermitted, err)
		}
		return nil, fmt.Errorf("setting up the network device: %w", err)
	}
	// Not before: there is nothing to poll until the device is there.
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

func configure(tun int, addr net.IP) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	up := func(r *unix.Ifreq) error {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return nil
	}
	steps := []struct {
		fd     int
		device string
		what   uint
		set    func(*unix.Ifreq) error
	}{
		{tun, deviceName, unix.TUNSETIFF, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI); return nil }},
		{s, deviceName, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr) }},
		{s, deviceName, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(net.IP{255, 255, 0, 0}) }},
		{s, deviceName, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }},
		{s, deviceName, unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(queue); return nil }},
		{s, deviceName, unix.SIOCSIFFLAGS, up},
		{s, "lo", unix.SIOCSIFFLAGS, up},
	}
	for _, step := range steps {
		r, err := unix.NewIfreq(step.device)
		if err != nil {
			return err
		}
		if err := step.set(r); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(step.fd, step.what, r); err != nil {
			return fmt.Errorf("%s, request %#x: %w", step.device, step.what, err)
		}
	}
	return nil
}
