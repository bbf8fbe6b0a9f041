package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metricOf reads metrics without labels from a server's page, and adds them up.
func metricOf(url string, names ...string) (sum float64, err error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url + "/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the server's metrics: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("reading the server's metrics: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(names, name) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the server's metrics: %w", err)
		}
		sum += n
	}
	return sum, nil
}
