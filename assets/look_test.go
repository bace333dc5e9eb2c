package assets

import (
	"cmp"
	"image"
	"image/color"
	"math"
	"slices"
	"testing"
)

// panels are the grounds that the icons stand on: dark and light ones of the usual desktops.
var panels = map[string]color.NRGBA{
	"#1e1e1e": {R: 0x1e, G: 0x1e, B: 0x1e, A: 0xff},
	"#2d2d2d": {R: 0x2d, G: 0x2d, B: 0x2d, A: 0xff},
	"#ffffff": {R: 0xff, G: 0xff, B: 0xff, A: 0xff},
	"#f0f0f0": {R: 0xf0, G: 0xf0, B: 0xf0, A: 0xff},
}

// rgb is a colour as a screen is sent it (sRGB), each part from 0 to 1.
type rgb [3]float64

func screen(c color.NRGBA) rgb {
	return rgb{float64(c.R) / 255, float64(c.G) / 255, float64(c.B) / 255}
}

// luminance is WCAG 2's relative luminance, from 0 to 1.
func (c rgb) luminance() float64 {
	linear := func(v float64) float64 {
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}

// contrast is WCAG 2's contrast ratio, from 1 to 21; 3 is asked of graphics (1.4.11).
func contrast(a, b rgb) float64 {
	la, lb := a.luminance(), b.luminance()
	return (math.Max(la, lb) + 0.05) / (math.Min(la, lb) + 0.05)
}

// grey is what remains for somebody who sees no colours, from 0 to 1.
func (c rgb) grey() float64 {
	return 0.299*c[0] + 0.587*c[1] + 0.114*c[2]
}

// on gives the pixels of a picture that stands on a panel, row by row.
func on(img image.Image, panel color.NRGBA) []rgb {
	ground := screen(panel)
	bounds := img.Bounds()
	var pixels []rgb
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			alpha, over := float64(c.A)/255, screen(c)
			var blended rgb
			for k := range blended {
				blended[k] = alpha*over[k] + (1-alpha)*ground[k]
			}
			pixels = append(pixels, blended)
		}
	}
	return pixels
}

// channel gives red (0), green (1) or blue (2) of pixels.
func channel(pixels []rgb, k int) []float64 {
	v := make([]float64, len(pixels))
	for n, c := range pixels {
		v[n] = c[k]
	}
	return v
}

// middle gives the inner half of a square picture, both ways: there the sign stands.
func middle(pixels []rgb, size int) []rgb {
	var inner []rgb
	for n, c := range pixels {
		if x, y := n%size, n/size; min(x, y) >= size/4 && max(x, y) < size-size/4 {
			inner = append(inner, c)
		}
	}
	return inner
}

func extremes(pixels []rgb) (lightest, darkest rgb) {
	byLuminance := func(a, b rgb) int { return cmp.Compare(a.luminance(), b.luminance()) }
	return slices.MaxFunc(pixels, byLuminance), slices.MinFunc(pixels, byLuminance)
}

func greys(pixels []rgb) []float64 {
	g := make([]float64, len(pixels))
	for n, c := range pixels {
		g[n] = c.grey()
	}
	return g
}

// distance is the mean difference of two pictures of one size, from 0 to 1.
func distance(a, b []float64) float64 {
	sum := 0.0
	for n := range a {
		sum += math.Abs(a[n] - b[n])
	}
	return sum / float64(len(a))
}

// likeness is the correlation of two pictures of one size, from -1 to 1: 1 for one
// shape in two shades, 0 for unrelated shapes, below it for a shape and its negative.
func likeness(a, b []float64) float64 {
	mean := func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		return sum / float64(len(v))
	}
	ma, mb := mean(a), mean(b)
	var ab, aa, bb float64
	for n := range a {
		ab += (a[n] - ma) * (b[n] - mb)
		aa += (a[n] - ma) * (a[n] - ma)
		bb += (b[n] - mb) * (b[n] - mb)
	}
	return ab / math.Sqrt(aa*bb)
}

// At 16 pixels each state differs from each other: in colour, in grey, and, its
// shade left aside, in shape.
func TestStatesDiffer(t *testing.T) {
	const (
		leastColour = 0.07
		leastGrey   = 0.07
		mostAlike   = 0.85
	)
	for name, panel := range panels {
		for n, a := range icons {
			for _, b := range icons[n+1:] {
				pa, pb := on(ico(t, a)[16], panel), on(ico(t, b)[16], panel)
				colour := 0.0
				for k := range 3 {
					colour += distance(channel(pa, k), channel(pb, k)) / 3
				}
				grey, alike := distance(greys(pa), greys(pb)), likeness(greys(pa), greys(pb))
				if colour < leastColour || grey < leastGrey || alike > mostAlike {
					t.Errorf("%s and %s are too much alike on %s: they differ by %.3f in colour and by %.3f in grey (at least %.2f and %.2f), their shapes agree by %.2f (at most %.2f)",
						a, b, name, colour, grey, leastColour, leastGrey, alike, mostAlike)
				}
			}
		}
	}
}

// What waits for a person catches the eye more than any other: on every panel it
// has the most colour, saturation and size taken together.
func TestPendingCatchesTheEye(t *testing.T) {
	colourful := func(i Icon, panel color.NRGBA) float64 {
		sum := 0.0
		pixels := on(ico(t, i)[16], panel)
		for _, c := range pixels {
			sum += max(c[0], c[1], c[2]) - min(c[0], c[1], c[2])
		}
		return sum / float64(len(pixels))
	}
	for name, panel := range panels {
		pending := colourful(Pending, panel)
		for _, i := range icons {
			if c := colourful(i, panel); i != Pending && c >= pending {
				t.Errorf("on %s %s has colour for %.2f, pending for %.2f only", name, i, c, pending)
			}
		}
	}
}

// WCAG asks 3:1 of graphics. Enough of each icon has it against each panel, and so
// has its sign against its body.
func TestContrast(t *testing.T) {
	for _, i := range icons {
		least := 0.3 // of the whole square
		if i == Absent {
			least = 0.2 // drawn in lines only: nobody is there
		}
		for _, size := range []int{16, 20, 24, 32, 48} {
			for name, panel := range panels {
				pixels, ground := on(ico(t, i)[size], panel), screen(panel)
				reach := 0
				for _, c := range pixels {
					if contrast(c, ground) >= 3 {
						reach++
					}
				}
				if share := float64(reach) / float64(len(pixels)); share < least {
					t.Errorf("%s of %d pixels on %s: %.0f %% of it reaches 3:1, want %.0f %%", i, size, name, 100*share, 100*least)
				}
				lightest, darkest := extremes(middle(pixels, size))
				if ratio := contrast(lightest, darkest); ratio < 3 {
					t.Errorf("%s of %d pixels on %s: its sign has %.1f:1 against its body, want 3:1", i, size, name, ratio)
				}
			}
		}
	}
}

// macOS reads only the alpha of a template; anything but black is a mistake of drawing.
func TestTemplates(t *testing.T) {
	shapes := make(map[Icon][]float64)
	for _, i := range icons {
		img := picture(t, templateSize, "rendered", "template", string(i)+".png")
		solid := 0
		for y := range templateSize {
			for x := range templateSize {
				c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
				if c.A > 0 && (c.R != 0 || c.G != 0 || c.B != 0) {
					t.Fatalf("template of %s: pixel %d,%d is %v, not black", i, x, y, c)
				}
				if c.A == 0xff {
					solid++
				}
				shapes[i] = append(shapes[i], float64(c.A)/255)
			}
		}
		if share := float64(solid) / (templateSize * templateSize); share < 0.15 || share > 0.85 {
			t.Errorf("template of %s: %.0f %% of it is solid, want 15 to 85", i, 100*share)
		}
	}
	for n, a := range icons {
		for _, b := range icons[n+1:] {
			d, alike := distance(shapes[a], shapes[b]), likeness(shapes[a], shapes[b])
			if d < 0.1 || alike > 0.85 {
				t.Errorf("templates of %s and %s are too much alike: they differ by %.3f, their shapes agree by %.2f", a, b, d, alike)
			}
		}
	}
}
