package ui

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// picture writes what is on the screen, if pictures are wanted.
func (b *browser) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	var screen []byte
	b.do(chromedp.CaptureScreenshot(&screen))
	full, err := png.Decode(bytes.NewReader(screen))
	require.NoError(b.t, err)
	var small bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, withPalette(full)))
	require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), small.Bytes(), 0o644))
}

// withPalette makes the file a third of its size: most of a page has few colours. Those that differ
// by less than can be seen become one; a picture with too many stays as it is.
func withPalette(full image.Image) image.Image {
	indexes := map[color.RGBA]uint8{}
	small := image.NewPaletted(full.Bounds(), nil)
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			c := color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)
			c = color.RGBA{near(c.R), near(c.G), near(c.B), c.A}
			i, ok := indexes[c]
			if !ok {
				if len(small.Palette) == 256 {
					return full
				}
				i = uint8(len(small.Palette))
				indexes[c] = i
				small.Palette = append(small.Palette, c)
			}
			small.SetColorIndex(x, y, i)
		}
	}
	return small
}

// near is the nearest multiple of 8.
func near(v uint8) uint8 { return uint8(min((int(v)+4)/8*8, 255)) }
