package main

import (
	"fmt"
	"slices"
	"time"
)

// ratio is one contender's figure over another's. Rounds are compared with the rounds
// beside them, so that what drifts on the machine cancels out; mid is the median of
// these comparisons, and min to max is their spread.
type ratio struct {
	mid, min, max float64
	rounds        int
}

// ratioOf compares figures of as many rounds of both.
func ratioOf(own, base []float64) ratio {
	var all []float64
	for i := range min(len(own), len(base)) {
		all = append(all, own[i]/base[i])
	}
	if len(all) == 0 {
		return ratio{}
	}
	return ratio{mid: middle(all), min: slices.Min(all), max: slices.Max(all), rounds: len(all)}
}

// middle is the median.
func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

func (r ratio) String() string {
	if r.rounds < 2 {
		return ratioText(r.mid)
	}
	return fmt.Sprintf("%s (%.2f–%.2f)", ratioText(r.mid), r.min, r.max)
}

// figures takes one figure of each round.
func figures(rounds []sample, of func(sample) float64) []float64 {
	var all []float64
	for _, s := range rounds {
		all = append(all, of(s))
	}
	return all
}

// What a sample is compared by.
func byRate(s sample) float64 { return s.rate }
func byCPU(s sample) float64  { return float64(s.cpu) }
func byP50(s sample) float64  { return float64(s.p50) }
func byP99(s sample) float64  { return float64(s.p99) }
func byBusy(s sample) float64 { return s.busy }

func compare(own, base []sample, of func(sample) float64) ratio {
	return ratioOf(figures(own, of), figures(base, of))
}

// durations are several measurements of one thing.
type durations []time.Duration

func (d durations) float() []float64 {
	var all []float64
	for _, v := range d {
		all = append(all, float64(v))
	}
	return all
}

func (d durations) median() time.Duration {
	return time.Duration(middle(d.float()))
}

func (d durations) String() string {
	if len(d) < 2 {
		return round(d.median()).String()
	}
	return fmt.Sprintf("%v (%v–%v)", round(d.median()), round(slices.Min(d)), round(slices.Max(d)))
}
