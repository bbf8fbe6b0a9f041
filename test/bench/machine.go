package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// machineCPU is how much CPU time the machine has had, and how much of it was idle.
func machineCPU() (all, idle float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, 0, errors.New("reading the machine's CPU time: /proc/stat has another form")
	}
	// Without what the host took away, which the machine didn't have; what guests used
	// is in user's.
	for i, f := range fields[1:8] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("reading the machine's CPU time: %w", err)
		}
		all += n
		if i == 3 || i == 4 { // idle, iowait
			idle += n
		}
	}
	return all, idle, nil
}
