#!/usr/bin/env bash
# Builds packages: build.sh FORMATS [VERSION [DIRECTORY]], from anywhere. Formats are
# named with commas between them ("deb", "deb,rpm"; "all" is what a release has). The
# paths of what was built are printed, a line each. Without a version it is git's.
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 3 ]; then
  echo "usage: $0 FORMATS [VERSION [DIRECTORY]]" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${3:-$root/.cache/packages}")
cd "$root"
exec go run ./packaging/release -out "$out" -version "${2:-}" "$1"
