#!/usr/bin/env bash
# Builds twice, in copies of the checkout at two places, and compares every byte:
# check.sh [FORMATS [VERSION [DIRECTORY]]]. What was built is left in the directory, if
# one is named. All formats take the programs of six systems.
set -euo pipefail
formats=${1:-all} version=${2:-} keep=${3:-}
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What would differ if it came into a file: place, depth, owner's mask, time, language.
build() { # NAME PLACE UMASK
  mkdir -p "$2/.cache"
  (cd "$root" && { git ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -path ./.cache -prune -o -type f -print0; }) |
    (cd "$root" && while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done) |
    tar --create --directory "$root" --null --files-from - | tar --extract --directory "$2" --touch
  ln -s "$root/.cache/tools" "$2/.cache/tools"
  (umask "$3" && cd "$2" && packaging/build.sh "$formats" "$version" "$scratch/$1" >/dev/null)
}
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || true)}
[ -z "$epoch" ] || export SOURCE_DATE_EPOCH=$epoch
mkdir -p "$root/.cache/tools" # shared: what is in it isn't ours
LC_ALL=C TZ=UTC build first "$scratch/a" 0022
LC_ALL=C.UTF-8 TZ=Asia/Tokyo build second "$scratch/another place, further/down" 0077
(cd "$scratch/first" && find . -type f | LC_ALL=C sort | xargs -d '\n' sha256sum) >"$scratch/first.sums"
(cd "$scratch/second" && find . -type f | LC_ALL=C sort | xargs -d '\n' sha256sum) >"$scratch/second.sums"
diff "$scratch/first.sums" "$scratch/second.sums" || { echo "two builds of one source differ" >&2; exit 1; }
echo "two builds, the same $(wc -l <"$scratch/first.sums") files:"
cat "$scratch/first.sums"
if [ -n "$keep" ]; then
  mkdir -p "$keep"
  cp -R "$scratch/first/." "$keep"
fi
