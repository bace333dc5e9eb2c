package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
)

// installer builds Windows' installer with NSIS, by packaging/windows/installer.nsi.
// Its own program is one for the older 32-bit systems where it brings a program for
// ARM: those systems run that by emulation, and NSIS has none for them.
func (r *release) installer(arch string) error {
	files, err := r.archiveFiles("windows", arch)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.work, "windows-"+arch)
	for _, f := range files {
		if err := write(filepath.Join(dir, filepath.FromSlash(f.name)), f.data, 0o644); err != nil {
			return err
		}
	}
	icon, err := r.windowsIcon()
	if err != nil {
		return err
	}
	if err := write(filepath.Join(dir, "intermission.ico"), icon, 0o644); err != nil {
		return err
	}
	name := fmt.Sprintf("intermission-%s-windows-%s-setup.exe", r.version, arch)
	target := map[string]string{"amd64": "amd64-unicode", "arm64": "x86-unicode"}[arch]
	if _, err := r.output(nil, r.path("packaging/windows"), "makensis", "-V2", "-WX", "-INPUTCHARSET", "UTF8", "-NOCD",
		"-DVERSION="+string(r.version), "-DNUMBERS="+r.version.windows(), "-DFILES="+dir, "-DTARGET="+target,
		"-DOUT="+filepath.Join(r.out, name), "installer.nsi"); err != nil {
		return err
	}
	r.made = append(r.made, name)
	return nil
}

// windowsIcon puts our picture together as an ICO: small ones as bitmaps, which
// everything reads, the large one as PNG.
func (r *release) windowsIcon() ([]byte, error) {
	type picture struct {
		size int
		data []byte
	}
	var pictures []picture
	for _, size := range []int{16, 24, 32, 48} {
		f, err := os.Open(r.path(fmt.Sprintf("assets/rendered/logo/%d.png", size)))
		if err != nil {
			return nil, err
		}
		img, err := png.Decode(f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		pictures = append(pictures, picture{size, bitmap(img)})
	}
	large, err := os.ReadFile(r.path("assets/rendered/intermission.png"))
	if err != nil {
		return nil, err
	}
	pictures = append(pictures, picture{256, large})

	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // into a buffer, of fixed size
		}
	}
	put(uint16(0), uint16(1), uint16(len(pictures)))
	offset := 6 + 16*len(pictures)
	for _, p := range pictures {
		put(uint8(p.size), uint8(p.size), uint8(0), uint8(0), uint16(1), uint16(32), uint32(len(p.data)), uint32(offset)) //nolint:gosec // 256 is written as 0
		offset += len(p.data)
	}
	for _, p := range pictures {
		b.Write(p.data)
	}
	return b.Bytes(), nil
}

// bitmap is an image as an ICO holds it: a header, rows of BGRA from below, and a
// mask, which the alpha replaces.
func bitmap(img image.Image) []byte {
	size := img.Bounds().Dx()
	maskRow := (size + 31) / 32 * 4
	var b bytes.Buffer
	for _, v := range []any{
		uint32(40), int32(size), int32(2 * size), uint16(1), uint16(32), uint32(0), uint32(size * (4*size + maskRow)), //nolint:gosec // small
		int32(0), int32(0), uint32(0), uint32(0),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	for y := size - 1; y >= 0; y-- {
		for x := range size {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			b.Write([]byte{c.B, c.G, c.R, c.A})
		}
	}
	b.Write(make([]byte, size*maskRow))
	return b.Bytes()
}
