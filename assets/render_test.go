package assets

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// What is committed is what the sources draw: nobody changed one without the other.
func TestRenderedIsFresh(t *testing.T) {
	rsvg, err := exec.LookPath("rsvg-convert")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("this test draws the icons afresh: install rsvg-convert (Debian: librsvg2-bin)")
		}
		t.Skip("rsvg-convert (Debian: librsvg2-bin) is not there to draw the icons afresh")
	}
	draw := func(source string, size int) image.Image {
		t.Helper()
		return drawn(t, rsvg, source, size)
	}
	// same allows what versions of librsvg smooth differently: some steps of 255 at
	// single pixels of an edge. A changed shape or colour is far above one of the bounds.
	same := func(name string, committed, fresh image.Image, area image.Rectangle, atMost float64) {
		t.Helper()
		mean, most := compare(committed, fresh, area)
		if mean > 1 || most > atMost {
			t.Errorf("%s isn't what its source draws: it differs by %.2f of 255 in the mean and by %.0f at most. Run assets/render.sh and commit", name, mean, most)
		}
	}

	const edge = 48
	for _, i := range icons {
		source := string(i) + ".svg"
		plain := picture(t, pngSize, "rendered", "png", string(i)+".png")
		same("png/"+string(i), plain, sharp(draw(source, pngSize)), plain.Bounds(), 255) // a pixel is there or not
		template := picture(t, templateSize, "rendered", "template", string(i)+".png")
		same("template/"+string(i), template, draw(filepath.Join("template", source), templateSize), template.Bounds(), edge)
		for size, img := range ico(t, i) {
			same("ico/"+string(i)+" of "+strconv.Itoa(size), img, draw(source, size), img.Bounds(), edge)
		}
	}
	logo := picture(t, logoSize, "rendered", "intermission.png")
	same("intermission.png", logo, draw("intermission.svg", logoSize), logo.Bounds(), edge)
	for _, size := range []int{16, 22, 24, 32, 48, 64, 128} {
		name := strconv.Itoa(size) + ".png"
		logo := picture(t, size, "rendered", "logo", name)
		same("logo/"+name, logo, draw("intermission.svg", size), logo.Bounds(), edge)
	}

	sheet, err := png.Decode(bytes.NewReader(file(t, "icons.png")))
	if err != nil {
		t.Fatal(err)
	}
	fresh := draw("sheet.svg", 0)
	if sheet.Bounds() != fresh.Bounds() {
		t.Fatalf("icons.png is %v, its source %v", sheet.Bounds(), fresh.Bounds())
	}
	above := sheet.Bounds() // the names below come out in the fonts of the machine
	above.Max.Y = 150
	same("icons.png", sheet, fresh, above, 2*edge) // of 255 colours
}

// sharp makes each pixel opaque or clear, as render.sh does for systray.
func sharp(img image.Image) image.Image {
	out := image.NewNRGBA(img.Bounds())
	for y := out.Rect.Min.Y; y < out.Rect.Max.Y; y++ {
		for x := out.Rect.Min.X; x < out.Rect.Max.X; x++ {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			if c.A > 127 {
				c.A = 255
				out.SetNRGBA(x, y, c)
			}
		}
	}
	return out
}

// TestSystrayTakesThePixels: systray 1.12 keeps the low byte of each 16-bit channel,
// which is the channel itself only where a pixel is opaque or clear.
func TestSystrayTakesThePixels(t *testing.T) {
	t.Parallel()
	for _, i := range icons {
		img := picture(t, pngSize, "rendered", "png", string(i)+".png")
		for y := range pngSize {
			for x := range pngSize {
				if _, _, _, a := img.At(x, y).RGBA(); a != 0 && a != 0xffff {
					t.Fatalf("%s: the pixel at %d, %d has opacity %d of 65535", i, x, y, a)
				}
			}
		}
	}
}

// drawn gives an SVG of icons/ afresh, in its own size if size is 0.
func drawn(t *testing.T, rsvg, source string, size int) image.Image {
	t.Helper()
	arguments := []string{filepath.Join("icons", source)}
	if size > 0 {
		arguments = append(arguments, "--width", strconv.Itoa(size), "--height", strconv.Itoa(size))
	}
	var stderr bytes.Buffer
	command := exec.Command(rsvg, arguments...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("rsvg-convert %s: %v: %s", source, err, stderr.Bytes())
	}
	img, err := png.Decode(bytes.NewReader(out))
	if err != nil {
		t.Fatalf("rsvg-convert %s: %v", source, err)
	}
	return img
}

// compare gives the mean and the greatest difference of two pictures in an area of
// both, in steps of 255. What is transparent has no colour that could differ.
func compare(a, b image.Image, area image.Rectangle) (mean, most float64) {
	if a.Bounds() != b.Bounds() {
		return math.Inf(1), math.Inf(1)
	}
	sum, count := 0.0, 0.0
	step := func(x, y uint8) {
		d := math.Abs(float64(x) - float64(y))
		sum, most = sum+d, max(most, d)
		count++
	}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			p := color.RGBAModel.Convert(a.At(x, y)).(color.RGBA)
			q := color.RGBAModel.Convert(b.At(x, y)).(color.RGBA)
			step(p.R, q.R)
			step(p.G, q.G)
			step(p.B, q.B)
			step(p.A, q.A)
		}
	}
	return sum / count, most
}
