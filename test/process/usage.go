package process

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the CPU times in /proc: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Machine describes what servers and programs run on: its cores and Go's version.
func Machine() string {
	model := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			model = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), model, runtime.Version())
}

// MachineAtWork is Machine, and what else it has to do at the moment.
func MachineAtWork() string {
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	return fmt.Sprintf("%s, load average %s before the run", Machine(), load)
}

// CPU is the user and system time that the process has used so far.
func (s *Server) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid()))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of %s: %w", s.Name, err)
	}
	// The second field is the program's name in brackets and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var sum int64
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of %s: %w", s.Name, err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

// Resident is the process's resident memory in bytes, mapped files included.
func (s *Server) Resident() (int64, error) {
	all, _, err := s.Memory()
	return all, err
}

// Memory is the process's resident memory in bytes, and how much of it is of mapped files, the
// binary included.
func (s *Server) Memory() (all, mapped int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.Pid()))
	if err != nil {
		return 0, 0, fmt.Errorf("reading the memory of %s: %w", s.Name, err)
	}
	var size, resident, shared int64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil {
		return 0, 0, fmt.Errorf("reading the memory of %s: %w", s.Name, err)
	}
	page := int64(os.Getpagesize())
	return resident * page, shared * page, nil
}
