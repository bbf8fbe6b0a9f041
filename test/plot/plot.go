// Package plot draws lines over measured points as SVG: a row of panels that share
// their series and a legend.
//
// Invariants:
//
//  1. A series has the same colour and mark in every panel.
//  2. Every axis has its ticks, its quantity and its unit.
//  3. The vertical axis begins at 0, or is logarithmic if the values differ by more than
//     logFrom, and then says so.
package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Chart is a row of panels.
type Chart struct {
	Title  string
	Panels []Panel
}

// Panel is one pair of axes.
type Panel struct {
	Title  string
	X, Y   string // quantity and unit
	Series []Series
}

// Series is one line.
type Series struct {
	Name   string
	Points []Point
}

// Point is one measurement. Points that a logarithmic axis can't show are left out.
type Point struct{ X, Y float64 }

// logFrom is the ratio of values above which an axis is logarithmic.
const logFrom = 50

const (
	panelWidth  = 380
	panelHeight = 330
	left        = 68 // of the axes within a panel
	right       = 16
	top         = 36
	bottom      = 50
	header      = 66 // of the chart: title and legend
)

// colours that are distinguishable with colour blindness, and marks that differ
// in shape.
var colours = []string{"#4477aa", "#cc6600", "#228833", "#aa3377", "#66ccee", "#bbbbbb"}

// Write draws the chart.
func (c Chart) Write(w io.Writer) error {
	var b strings.Builder
	width, height := panelWidth*len(c.Panels), header+panelHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica,Arial,sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="16" y="26" font-size="17" font-weight="bold">%s</text>`+"\n", html.EscapeString(c.Title))
	names := c.names()
	c.legend(&b, names)
	for i, p := range c.Panels {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i*panelWidth, header)
		p.draw(&b, names)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// names are those of all series, in the order in which they first occur.
func (c Chart) names() []string {
	var names []string
	for _, p := range c.Panels {
		for _, s := range p.Series {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

func (c Chart) legend(b *strings.Builder, names []string) {
	x := 20.0
	for i, n := range names {
		fmt.Fprintf(b, `<path d="M%.0f 48h28" stroke="%s" stroke-width="2"/>`, x, colours[i%len(colours)])
		mark(b, i, x+14, 48)
		fmt.Fprintf(b, `<text x="%.0f" y="52">%s</text>`+"\n", x+34, html.EscapeString(n))
		x += 60 + 6.6*float64(len(n))
	}
}

func (p Panel) draw(b *strings.Builder, names []string) {
	x, y := p.axes()
	bottomY, rightX := float64(panelHeight-bottom), float64(panelWidth-right)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", left, top-12, html.EscapeString(p.Title))
	for _, t := range y.ticks() {
		fmt.Fprintf(b, `<path d="M%d %.1fH%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y.at(t), rightX, left-7, y.at(t)+4, number(t))
	}
	for _, t := range x.ticks() {
		fmt.Fprintf(b, `<path d="M%.1f %.1fv5" stroke="#444444"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n",
			x.at(t), bottomY, x.at(t), bottomY+19, number(t))
	}
	fmt.Fprintf(b, `<path d="M%d %dV%.1fH%.1f" stroke="#444444" fill="none"/>`+"\n", left, top, bottomY, rightX)
	label := p.Y
	if y.log {
		label += ", logarithmic"
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", (left+rightX)/2, bottomY+39, html.EscapeString(p.X))
	fmt.Fprintf(b, `<text transform="translate(16,%.1f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+bottomY)/2, html.EscapeString(label))
	for _, s := range p.Series {
		s.draw(b, slices.Index(names, s.Name), x, y)
	}
}

func (s Series) draw(b *strings.Builder, which int, x, y axis) {
	colour := colours[which%len(colours)]
	var path strings.Builder
	for _, p := range s.Points {
		if !y.shows(p.Y) {
			continue
		}
		verb := "L"
		if path.Len() == 0 {
			verb = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", verb, x.at(p.X), y.at(p.Y))
	}
	if path.Len() == 0 {
		return
	}
	fmt.Fprintf(b, `<path d="%s" stroke="%s" stroke-width="2" fill="none"/>`+"\n", path.String(), colour)
	for _, p := range s.Points {
		if y.shows(p.Y) {
			mark(b, which, x.at(p.X), y.at(p.Y))
		}
	}
}

// mark draws the sign of a series: a disc, a square, a triangle, a diamond.
func mark(b *strings.Builder, which int, x, y float64) {
	colour := colours[which%len(colours)]
	switch which % 4 {
	case 0:
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, x, y, colour)
	case 1:
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="7.4" height="7.4" fill="%s"/>`, x-3.7, y-3.7, colour)
	case 2:
		fmt.Fprintf(b, `<path d="M%.1f %.1fl4.8 8.6h-9.6z" fill="%s"/>`, x, y-5.4, colour)
	case 3:
		fmt.Fprintf(b, `<path d="M%.1f %.1fl5.2 5.2l-5.2 5.2l-5.2 -5.2z" fill="%s"/>`, x, y-5.2, colour)
	}
	b.WriteByte('\n')
}

func (p Panel) axes() (x, y axis) {
	var maxX, minY, maxY = 0.0, math.Inf(1), 0.0
	for _, s := range p.Series {
		for _, pt := range s.Points {
			maxX, maxY = max(maxX, pt.X), max(maxY, pt.Y)
			if pt.Y > 0 {
				minY = min(minY, pt.Y)
			}
		}
	}
	x = linear(maxX, left, panelWidth-right)
	if maxY > logFrom*minY {
		return x, logarithmic(minY, maxY, panelHeight-bottom, top)
	}
	return x, linear(maxY, panelHeight-bottom, top)
}
