package assets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
)

// icoEntry is one entry of an ICO file's directory (ICONDIRENTRY).
type icoEntry struct {
	Width, Height uint8 // 0 is 256
	Colours       uint8
	_             uint8
	Planes, Bits  uint16
	Size, Offset  uint32
}

// bitmapHeader is the head of an entry that isn't a PNG (BITMAPINFOHEADER).
type bitmapHeader struct {
	Size          uint32
	Width, Height int32 // the height counts picture and mask
	Planes, Bits  uint16
	Compression   uint32
	_             [20]byte
}

// decodeICO gives the pictures of an ICO file in the file's order. It takes what
// Windows takes everywhere: 32 bits a pixel, uncompressed up to 48 pixels, PNG above.
func decodeICO(b []byte) ([]image.Image, error) {
	var head struct{ Reserved, Type, Count uint16 }
	r := bytes.NewReader(b)
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return nil, err
	}
	if head.Reserved != 0 || head.Type != 1 {
		return nil, errors.New("not an ICO")
	}
	entries := make([]icoEntry, head.Count)
	if err := binary.Read(r, binary.LittleEndian, entries); err != nil {
		return nil, err
	}
	next := uint64(len(b) - r.Len())
	var images []image.Image
	for n, e := range entries {
		if uint64(e.Offset) != next {
			return nil, fmt.Errorf("entry %d starts at %d, want %d: a gap or an overlap", n, e.Offset, next)
		}
		next += uint64(e.Size)
		if next > uint64(len(b)) {
			return nil, fmt.Errorf("entry %d goes on after the end of the file", n)
		}
		if e.Planes > 1 || e.Bits != 32 {
			return nil, fmt.Errorf("entry %d has %d planes of %d bits", n, e.Planes, e.Bits)
		}
		img, err := decodeEntry(e, b[e.Offset:next])
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", n, err)
		}
		if b := img.Bounds(); uint8(b.Dx()) != e.Width || uint8(b.Dy()) != e.Height {
			return nil, fmt.Errorf("entry %d is %v, its directory says %d by %d", n, b, e.Width, e.Height)
		}
		images = append(images, img)
	}
	if next != uint64(len(b)) {
		return nil, fmt.Errorf("%d bytes after the last entry", uint64(len(b))-next)
	}
	return images, nil
}

func decodeEntry(e icoEntry, b []byte) (image.Image, error) {
	if e.Width == 0 || e.Width > 48 {
		return png.Decode(bytes.NewReader(b))
	}
	var head bitmapHeader
	r := bytes.NewReader(b)
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return nil, err
	}
	size := int(head.Width)
	if head.Size != 40 || int(head.Height) != 2*size || head.Bits != 32 || head.Compression != 0 {
		return nil, fmt.Errorf("unexpected bitmap: %+v", head)
	}
	pixels := b[head.Size:]
	row := (size + 31) / 32 * 4 // a row of the mask is padded to 32 bits
	if len(pixels) != size*size*4+size*row {
		return nil, fmt.Errorf("%d bytes of pixels and mask", len(pixels))
	}
	mask := pixels[size*size*4:]
	img := image.NewNRGBA(image.Rect(0, 0, size, size))
	for y := range size {
		up := size - 1 - y // rows run from the bottom
		for x := range size {
			p := pixels[(up*size+x)*4:]
			img.SetNRGBA(x, y, color.NRGBA{R: p[2], G: p[1], B: p[0], A: p[3]})
			if masked := mask[up*row+x/8]&(0x80>>(x%8)) != 0; masked && p[3] != 0 {
				return nil, fmt.Errorf("pixel %d,%d is to be seen, and masked out", x, y)
			}
		}
	}
	return img, nil
}
