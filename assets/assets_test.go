package assets

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

var icons = []Icon{Running, Pending, Working, Stopped, Failed, Absent}

// icoSizes are what Windows asks for at 100 to 300 % (16 to 48), and in Explorer (256).
var icoSizes = []int{16, 20, 24, 32, 48, 256}

const (
	pngSize      = 64
	templateSize = 44
	logoSize     = 256
)

// file reads what is committed. The tests look at every system's pictures
// wherever they run; the embedded ones are held to the files by TestEmbedded.
func file(t *testing.T, elements ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// picture decodes a committed PNG and holds it to its size.
func picture(t *testing.T, size int, elements ...string) image.Image {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(file(t, elements...)))
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(elements...), err)
	}
	if got, want := img.Bounds(), image.Rect(0, 0, size, size); got != want {
		t.Fatalf("%s is %v, want %v", filepath.Join(elements...), got, want)
	}
	return img
}

// ico decodes a committed ICO, by size.
func ico(t *testing.T, i Icon) map[int]image.Image {
	t.Helper()
	images, err := decodeICO(file(t, "rendered", "ico", string(i)+".ico"))
	if err != nil {
		t.Fatalf("%s.ico: %v", i, err)
	}
	bySize := make(map[int]image.Image)
	var sizes []int
	for _, img := range images {
		sizes = append(sizes, img.Bounds().Dx())
		bySize[img.Bounds().Dx()] = img
	}
	if !slices.Equal(sizes, icoSizes) {
		t.Fatalf("%s.ico holds %v, want %v", i, sizes, icoSizes)
	}
	return bySize
}

func TestSizes(t *testing.T) {
	for _, i := range icons {
		picture(t, pngSize, "rendered", "png", string(i)+".png")
		picture(t, templateSize, "rendered", "template", string(i)+".png")
		ico(t, i)
	}
	picture(t, logoSize, "rendered", "intermission.png")
}

// What is embedded is carried by every copy of the program, and cloned by everybody.
func TestSmall(t *testing.T) {
	const most = 230_000
	total := 0
	for _, pattern := range []string{"rendered/*.png", "rendered/*/*", "icons.png"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: nothing there (%v)", pattern, err)
		}
		for _, name := range names {
			total += len(file(t, name))
		}
	}
	if total > most {
		t.Errorf("the rendered pictures are %d bytes, more than %d", total, most)
	}
}

func TestEmbedded(t *testing.T) {
	form, template := "png", runtime.GOOS == "darwin"
	if runtime.GOOS == "windows" {
		form = "ico"
	}
	for _, i := range icons {
		if !bytes.Equal(i.Data(), file(t, "rendered", form, string(i)+"."+form)) {
			t.Errorf("%s: Data isn't rendered/%s/%[1]s.%[2]s", i, form)
		}
		var want []byte
		if template {
			want = file(t, "rendered", "template", string(i)+".png")
		}
		if !bytes.Equal(i.Template(), want) {
			t.Errorf("%s: Template has %d bytes, want %d", i, len(i.Template()), len(want))
		}
	}
	if !bytes.Equal(Logo(), file(t, "rendered", "intermission.png")) {
		t.Error("Logo isn't rendered/intermission.png")
	}
	var want []byte
	if runtime.GOOS == "linux" {
		want = file(t, "icons", "intermission.svg")
	}
	if !bytes.Equal(LogoSVG(), want) {
		t.Errorf("LogoSVG has %d bytes, want %d", len(LogoSVG()), len(want))
	}
}

func TestUnknownIsAbsent(t *testing.T) {
	for _, i := range []Icon{"", "paused", "../ico/running", "running.png", "\x00"} {
		if !bytes.Equal(i.Data(), Absent.Data()) {
			t.Errorf("%q doesn't give the picture of %s", i, Absent)
		}
		if !bytes.Equal(i.Template(), Absent.Template()) {
			t.Errorf("%q doesn't give the template of %s", i, Absent)
		}
	}
}

// A caller that writes into its bytes changes nobody else's.
func TestOwned(t *testing.T) {
	for name, get := range map[string]func() []byte{
		"Data": Pending.Data, "Template": Pending.Template, "Logo": Logo, "LogoSVG": LogoSVG,
	} {
		b := get()
		if b == nil {
			continue // not of this system; TestEmbedded holds which
		}
		was := b[0]
		b[0]++
		if get()[0] != was {
			t.Errorf("%s gives everybody the same bytes", name)
		}
	}
}

// A desktop reads the SVG with its own parser, and shows nothing if it isn't well formed.
func TestSourcesAreSVG(t *testing.T) {
	names, err := filepath.Glob("icons/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	templates, err := filepath.Glob("icons/template/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != len(icons)+2 || len(templates) != len(icons) { // and the logo, and the sheet
		t.Errorf("%d pictures and %d templates for %d icons", len(names), len(templates), len(icons))
	}
	for _, name := range append(names, templates...) {
		if err := wellFormed(file(t, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func wellFormed(b []byte) error {
	d := xml.NewDecoder(bytes.NewReader(b))
	var root string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if start, ok := token.(xml.StartElement); ok && root == "" {
			root = start.Name.Local
		}
	}
	if root != "svg" {
		return fmt.Errorf("the outermost element is %q", root)
	}
	return nil
}
