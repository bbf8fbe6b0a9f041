package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// For any values, an axis covers all of them and has ticks.
func TestAxesShowAllValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(1e-3, 1e7), 1, 10).Draw(t, "values")
		p := Panel{Series: []Series{{}}}
		for i, v := range values {
			p.Series[0].Points = append(p.Series[0].Points, Point{float64(i + 1), v})
		}
		x, y := p.axes()
		for _, pt := range p.Series[0].Points {
			require.GreaterOrEqual(t, y.at(pt.Y), float64(top)-0.1)
			require.LessOrEqual(t, y.at(pt.Y), float64(panelHeight-bottom)+0.1)
			require.LessOrEqual(t, x.at(pt.X), float64(panelWidth-right))
		}
		require.GreaterOrEqual(t, len(y.ticks()), 3)
		require.LessOrEqual(t, len(y.ticks()), 14)
		for _, tick := range y.ticks() {
			require.NotEmpty(t, number(tick))
		}
	})
}

func TestWriteIsXML(t *testing.T) {
	c := Chart{Title: "a < b", Panels: []Panel{
		{Title: "throughput", X: "clients", Y: "operations/s", Series: []Series{
			{Name: "one", Points: []Point{{1, 10}, {50, 9000}}}, {Name: "other & more", Points: []Point{{1, 0}, {50, 80}}},
		}},
		{Title: "none", Series: []Series{{Name: "other & more"}}},
	}}
	var b bytes.Buffer
	require.NoError(t, c.Write(&b))
	require.Contains(t, b.String(), "logarithmic")
	d := xml.NewDecoder(&b)
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}
