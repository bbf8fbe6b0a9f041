package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// metricOf reads metrics from a server's page, and adds them up.
func metricOf(url string, names ...string) (sum float64, err error) {
	all, err := metricsOf(url)
	for _, name := range names {
		sum += all[name]
	}
	return sum, err
}

// metricsOf reads all metrics of a server's page, by their names with labels.
func metricsOf(url string) (all map[string]float64, err error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("reading the server's metrics: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the server's metrics: %w", err)
	}
	all = map[string]float64{}
	for line := range strings.Lines(string(text)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if all[line[:at]], err = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err != nil {
			return nil, fmt.Errorf("reading the server's metrics: %w", err)
		}
	}
	return all, nil
}
