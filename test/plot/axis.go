package plot

import (
	"fmt"
	"math"
	"strconv"
)

// axis maps values to places.
type axis struct {
	low, high float64 // values
	from, to  float64 // places
	log       bool
}

// linear begins at 0 and ends at a tick, or a little above the last.
func linear(highest, from, to float64) axis {
	if highest <= 0 {
		highest = 1
	}
	return axis{high: highest * 1.04, from: from, to: to}
}

// logarithmic covers the values and reaches at least to the next of 1, 2, 5.
func logarithmic(lowest, highest, from, to float64) axis {
	a := axis{from: from, to: to, log: true}
	a.low, a.high = math.Pow(10, math.Floor(math.Log10(lowest))), math.Pow(10, math.Ceil(math.Log10(highest)))
	for _, m := range []float64{5, 2} {
		if a.low*m <= lowest {
			a.low *= m
			break
		}
	}
	for _, m := range []float64{5, 2} {
		if a.high/10*(10/m) >= highest {
			a.high /= m
			break
		}
	}
	return a
}

func (a axis) at(v float64) float64 {
	if a.log {
		return a.from + (a.to-a.from)*math.Log(v/a.low)/math.Log(a.high/a.low)
	}
	return a.from + (a.to-a.from)*(v-a.low)/(a.high-a.low)
}

func (a axis) shows(v float64) bool { return !a.log || v > 0 }

// ticks are round numbers: five or so, or the powers of ten and, if there are but few,
// what lies between.
func (a axis) ticks() []float64 {
	var ticks []float64
	if a.log {
		between := []float64{1}
		if a.high/a.low < 1e4 {
			between = []float64{1, 2, 5}
		}
		for p := math.Floor(math.Log10(a.low)); p <= math.Log10(a.high); p++ {
			for _, m := range between {
				if t := m * math.Pow(10, p); t >= a.low*0.999 && t <= a.high*1.001 {
					ticks = append(ticks, t)
				}
			}
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(a.high/4)))
	for _, m := range []float64{5, 2} {
		if a.high/(step*m) >= 3.5 {
			step *= m
			break
		}
	}
	for i := 0.0; i*step <= a.high; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks
}

// number writes a tick shortly.
func number(v float64) string {
	switch {
	case v >= 1e6:
		return short(v/1e6) + "M"
	case v >= 1e4:
		return short(v/1e3) + "k"
	}
	return short(v)
}

func short(v float64) string {
	f, err := strconv.ParseFloat(fmt.Sprintf("%.3g", v), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
