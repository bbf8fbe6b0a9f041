//go:build !linux || !amd64

package syscalls

func trace(*order) error { return ErrUnsupported }
