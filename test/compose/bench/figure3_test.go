package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/sheet"
)

func TestMirrorReport(t *testing.T) {
	p, err := parse([]string{"-mirrors", "-servers", "stoa", "-loads", "1,3", "-img", "img", "-write", "out.md"})
	require.NoError(t, err)
	r := newReport(p)
	rates := map[string]float64{mirrored: 400, unordered: 490, partitioned: 500, oneCluster: 100}
	for _, read := range p.reads {
		for _, local := range p.locals {
			for _, clients := range p.loads {
				for way, rate := range rates {
					if read == 100 && local == 0 && way == unordered {
						rate /= 2
					}
					f := figures{rate: rate, p50: time.Millisecond, p99: 2 * time.Millisecond}
					r.add(&bytes.Buffer{}, cell{"stoa", way, r.mix3(read, local, clients)}, sample{region: [2]figures{f, f}, requests: 200, mirrored: 20, syncs: 3})
				}
			}
		}
	}
	var out bytes.Buffer
	r.markdown3(&out)
	for _, line := range []string{
		"| stoa, 90 % reads, 85 % local, all loads; mirrored, unsynced : by hand | throughput ≥ 0.95x | 0.98x (0.98–0.98) | met |",
		"| stoa, 100 % reads, 0 % local, all loads; mirrored, unsynced : by hand | throughput ≥ 0.95x | 0.49x (0.49–0.49) | missed |",
		"| 85 % | 3 | mirrored | 400 | 1ms / 2ms | 400 | 1ms / 2ms | 0s | 10 % | 3 | 0.80x | 4.00x |",
		"![latency, 90 % reads](img/compose-stoa-mirrors-latency-reads90.svg)",
	} {
		require.Contains(t, out.String(), line)
	}
	require.NotContains(t, out.String(), "90 % reads, 0 % local, all loads", "writes of shared keys are far away")
	require.NoError(t, sheet.Draw(t.TempDir(), r.charts3()))
}
