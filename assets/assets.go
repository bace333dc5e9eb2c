// Package assets holds the pictures of the tray and of the program, embedded. It
// imports nothing of ours.
//
//	systray.SetIcon(assets.Pending.Data())
//
// A state is told by its shape as much as by its colour, for 16 pixels are few and
// not everybody sees red and green:
//
//	Running  a dark disc with a pause sign
//	Pending  a square, the only one, whose pause sign calls out
//	Working  a disc with a play sign
//	Stopped  an open ring around a stop sign
//	Failed   an octagon with a cross
//	Absent   a broken ring, struck through
//
// What borders on the panel is of middle lightness or has a dark outline, so that one
// picture serves dark and light panels.
//
// The sources are icons/*.svg, and icons/template/*.svg for macOS, on a grid of 4
// units, which is a pixel at 16. After a change run render.sh (Debian: librsvg2-bin,
// imagemagick), which draws rendered/ from them, and commit both: a test holds them
// together. A binary carries its own system's form only: a file's suffix tells which.
package assets

import "embed"

// Icon names one picture of the tray.
type Icon string

// What the tray shows.
const (
	Running Icon = "running" // the server runs, nothing is at work
	Pending Icon = "pending" // sessions wait for consent
	Working Icon = "working" // sessions are at work
	Stopped Icon = "stopped" // the server is stopped
	Failed  Icon = "failed"  // the server was given up, or may not be started
	Absent  Icon = "absent"  // no supervisor answers
)

//go:embed rendered/intermission.png
var logo string

// Data is the picture in the form that the system's tray takes: PNG of 64 by 64
// pixels on Linux and macOS, on Windows ICO of 16, 20, 24, 32, 48 and 256. An
// Icon that isn't known gives Absent's. The caller owns the bytes.
func (i Icon) Data() []byte {
	return i.picture()
}

// Template is the picture for macOS's menu bar, which colours it itself: PNG of
// 44 by 44 pixels, black with alpha. Elsewhere it is nil. The caller owns the bytes.
func (i Icon) Template() []byte {
	return i.template()
}

// Logo is the program's picture, for notifications: PNG of 256 by 256 pixels.
// The caller owns the bytes.
func Logo() []byte {
	return []byte(logo)
}

// LogoSVG is the same for the desktop entry of Linux; elsewhere it is nil. The
// caller owns the bytes.
func LogoSVG() []byte {
	return logoSVG()
}

// read takes the picture of an Icon out of a directory; a test finds every one there.
func read(files embed.FS, directory, extension string, i Icon) []byte {
	b, err := files.ReadFile(directory + string(i) + extension)
	if err != nil {
		b, _ = files.ReadFile(directory + string(Absent) + extension)
	}
	return b
}
