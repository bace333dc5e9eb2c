#!/usr/bin/env bash
# Renders the icons that the program embeds, from icons/ into rendered/, and the
# README's icons.png. What it writes is committed, so that building needs no
# tools; after a change of an SVG run it and commit both. The same tools give the
# same bytes: nothing that is written holds a date.
set -euo pipefail
cd "$(dirname "$0")"

missing=()
command -v rsvg-convert >/dev/null || missing+=("rsvg-convert (Debian: librsvg2-bin)")
command -v convert >/dev/null || missing+=("convert (Debian: imagemagick)")
if [ ${#missing[@]} -gt 0 ]; then
  printf -v list '%s, ' "${missing[@]}"
  echo "render.sh needs ${list%, }: install it and try again." >&2
  exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# draw SVG SIZE PNG: each size is drawn afresh, for a picture scaled down is blurred.
draw() {
  rsvg-convert --width "$2" --height "$2" "icons/$1.svg" --output "$scratch/drawn.png"
  pack "$scratch/drawn.png" "$3"
}

# pack FROM TO: the smallest lossless PNG, without dates and other notes.
pack() {
  convert "$1" -strip -define png:exclude-chunks=all -define png:include-chunks=tRNS \
    -define png:compression-level=9 -define png:compression-filter=5 "$2"
}

mkdir -p rendered/{png,ico,template}
for icon in running pending working stopped failed absent; do
  # StatusNotifierItem: the host scales it, and so smooths its edges. A pixel that is
  # neither opaque nor clear comes out of systray 1.12 in another colour: it takes the
  # low bytes of colours that are multiplied with their opacity.
  draw "$icon" 64 "$scratch/smooth.png"
  convert "$scratch/smooth.png" -channel A -threshold 50% +channel -background none -alpha background "$scratch/sharp.png"
  pack "$scratch/sharp.png" "rendered/png/$icon.png"
  draw "template/$icon" 44 "rendered/template/$icon.png" # menu bar: 22 points on a Retina screen

  sizes=()
  for size in 16 20 24 32 48 256; do # the notification area at 100, 125, 150, 200 and 300 %, and Explorer
    draw "$icon" "$size" "$scratch/$icon-$size.png"
    sizes+=("$scratch/$icon-$size.png")
  done
  convert "${sizes[@]}" -strip -define png:exclude-chunks=all "rendered/ico/$icon.ico"
done
draw intermission 256 rendered/intermission.png
# For the packages: the sizes of hicolor. Windows' icon is put together of them.
mkdir -p rendered/logo
for size in 16 22 24 32 48 64 128; do
  draw intermission "$size" "rendered/logo/$size.png"
done

rsvg-convert icons/sheet.svg --output "$scratch/sheet.png"
convert "$scratch/sheet.png" +dither -colors 255 "$scratch/few.png" # a third of the bytes, and nobody sees it
pack "$scratch/few.png" icons.png
