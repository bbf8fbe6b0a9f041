// Command costs measures what a step of the extension language takes: each construct and
// host function at its worst, in nanoseconds of processor time per step that is charged,
// and how many bytes it allocates for each byte that is charged. It prints a table,
// and ends with an error if anything is more than a factor from the mean.
//
//	costs [-only REGEXP] [-runs N] [-factor F]
//	costs -search 1h [-seed N]
//
// With -search it makes scripts of its own and changes those for which a step takes
// longest, or a byte most memory; it prints the worst that it has found, and ends with an
// error if these are out of the same bounds.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
)

func main() {
	only := flag.String("only", "", "measure only the constructs whose names match")
	runs := flag.Int("runs", 15, "measure each so often, and take the first quartile")
	factor := flag.Float64("factor", 4, "how far from the mean a construct may be")
	duration := flag.Duration("search", 0, "search for the worst script for so long")
	seed := flag.Uint64("seed", 1, "of the search")
	flag.Parse()
	if *duration > 0 {
		if !newSearch(*seed, *factor).run(*duration) {
			os.Exit(1)
		}
		return
	}
	names, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "costs: -only:", err)
		os.Exit(2)
	}
	if !table(names, *runs, *factor) {
		os.Exit(1)
	}
}

type row struct {
	name string
	used
}

// table prints all constructs from the cheapest to the dearest step, and tells whether
// all are within the bounds.
func table(names *regexp.Regexp, runs int, factor float64) bool {
	var rows []row
	for _, p := range slices.Concat(probes, hostProbes) {
		if names.MatchString(p.name) {
			rows = append(rows, row{p.name, p.measure(runs)})
		}
	}
	if len(rows) == 0 {
		return true
	}
	slices.SortFunc(rows, func(a, b row) int { return int(1000*a.perStep() - 1000*b.perStep()) })
	logs := 0.0
	for _, r := range rows {
		logs += math.Log(r.perStep())
	}
	mean, good := math.Exp(logs/float64(len(rows))), true
	fmt.Printf("%-48s %9s %7s %11s\n", "construct", "ns/step", "/ mean", "bytes/byte")
	for _, r := range rows {
		wrong := ""
		if f := r.perStep() / mean; f > factor || f < 1/factor || r.perByte() > maxPerByte {
			wrong, good = "  out of bounds", false
		}
		fmt.Printf("%-48s %9.2f %7.2f %11.2f%s\n", r.name, r.perStep(), r.perStep()/mean, r.perByte(), wrong)
	}
	fmt.Printf("geometric mean: %.2f ns/step\n", mean)
	return good
}

// maxPerByte is how many bytes may be allocated for each that is charged.
const maxPerByte = 1.25
