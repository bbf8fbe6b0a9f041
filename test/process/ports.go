package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// The ports of servers lie below the kernel's ephemeral range. Those of etcd's own tests, which
// are fixed and may run at the same time, begin at 20,000.
const (
	lowestPort, highestPort = 12_000, 32_000
	etcdsLowest             = 20_000
	etcdsHighest            = 21_000
)

// freePorts finds ports without a listener, and keeps them from other test processes until this
// one ends: a server that is stopped finds its port free when it is started again.
func freePorts(n int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		if tries > 1000 {
			return nil, errors.New("finding free ports: none after 1000 tries")
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if port >= etcdsLowest && port < etcdsHighest || !reserve(port) {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

// reserve locks the file that stands for a port. The lock ends with the process.
func reserve(port int) bool {
	dir := filepath.Join(os.TempDir(), "stoa-ports")
	if os.MkdirAll(dir, 0o777) != nil {
		return false
	}
	fd, err := syscall.Open(filepath.Join(dir, strconv.Itoa(port)), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o666)
	if err != nil {
		return false
	}
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		syscall.Close(fd)
		return false
	}
	return true
}
