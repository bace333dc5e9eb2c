#!/usr/bin/env bash
# Takes the README's pictures of the tray: tells a story on a desktop of its own, with
# a real panel, a real notification daemon and a real pointer, and checks each step.
#
#   assets/screenshots/make.sh [OUTDIR]     default: this directory
#   assets/screenshots/make.sh --missing    names the Debian packages that it needs and aren't there
#
# INTERMISSION_BIN names a program that is built already. It works in a temporary
# directory, on loopback only, and ends what it started. Exit status: 0 done, 1 something
# was not as it should be (OUTDIR/failure.png is then the screen), 2 tools are missing.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=desk.bash
. "$here/desk.bash"

packages=$(missing)
if [ "${1-}" = --missing ]; then
  echo "$packages"
  exit 0
fi
out=$(realpath -m "${1:-$here}")
if [ -n "$packages" ]; then
  echo "make.sh: packages are missing: install them (Debian: apt-get install --no-install-recommends $packages)" >&2
  exit 2
fi

root=$(mktemp -d "${TMPDIR:-/tmp}/intermission-shots.XXXXXX")
home=$root/home
supervisor=
# finish ends what was started, the supervisor first, which ends its server in good order.
finish() {
  local code=$?
  trap - ERR
  trap "" INT TERM HUP
  # shellcheck disable=SC2046  # several words
  end TERM $supervisor && end TERM $(ours) && end KILL $(ours)
  rm -rf "$root"
  exit $code
}
trap finish EXIT
trap 'fail "line $LINENO failed: $BASH_COMMAND"' ERR
trap 'exit 130' INT
trap 'exit 143' TERM HUP

bin=${INTERMISSION_BIN-}
if [ -z "$bin" ]; then
  bin=$root/intermission
  (cd "$here/../.." && CGO_ENABLED=0 go build -trimpath -o "$bin" .)
fi
bin=$(realpath "$bin")
mkdir -p "$out"
rm -f "$out/failure.png"
make_home

# --- the supervisor, and its server with a scripted model ---

export INTERMISSION_RUNTIME_DIR=$root/run INTERMISSION_DEVSERVER_KIND=claims INTERMISSION_DEVSERVER_REQUESTS=$root/requests
mkdir "$XDG_CONFIG_HOME/intermission"
printf '[server]\ncommand = ["%s", "devserver", "serve", "--service"]\n[notify]\nquiet = []\n' "$bin" >"$XDG_CONFIG_HOME/intermission/config.toml"
touch "$root/requests"

# status FILTER: what jq makes of the status; it fails on false and null.
status() { "$bin" status --json 2>/dev/null | jq -er "$1"; }
is() { status "$1" >/dev/null; }
pending() { "$bin" pending --json | jq -r "$1"; }
executions() { wc -l <"$root/requests"; }

# api METHOD PATH [JSON]: a call to the server, as its registration tells.
api() {
  local registration=$XDG_STATE_HOME/opencode/service.json
  curl -sS --fail --max-time 5 --noproxy '*' -K - -X "$1" -H 'Content-Type: application/json' ${3+--data "$3"} \
    "$(jq -r .url "$registration")$2" <<<"user = \"opencode:$(jq -r .password "$registration")\""
}
active() { api GET /api/session/active | jq -e --arg id "$1" '.data | has($id)' >/dev/null; }
asked() { [ "$(jq -rs --arg id "$1" 'map(select(.session == $id)) | length' "$root/requests")" -ge "$2" ]; }

# begin DIRECTORY TITLE PROMPT SCRIPT: a session in ~/DIRECTORY, which is at SCRIPT
# when this returns. The id is then in $begun. The title is made from a first prompt.
begin() {
  mkdir -p "$home/$1"
  begun=$(api POST /api/session "$(jq -n --arg d "$home/$1" '{location: {directory: $d}}')" | jq -r .data.id)
  api POST "/api/session/$begun/prompt" "$(jq -n --arg t "$2" '{text: $t}')" >/dev/null
  await 10 "the first answer in \"$2\"" asked "$begun" 1
  await 10 "the end of the first answer in \"$2\"" not active "$begun"
  api POST "/api/session/$begun/prompt" "$(jq -n --arg t "$3" --arg s "$4" '{text: ($t + "\n" + $s)}')" >/dev/null
  await 10 "\"$2\" at work" asked "$begun" 2
}

"$bin" run >"$root/log/supervisor" 2>&1 &
supervisor=$!
start_desktop
await 20 "the server" is '.server.state == "running"'

mkdir -p "$home/shop"
printf '#!/bin/sh\ntouch started\nexec sleep 600\n' >"$home/shop/migrate"
chmod +x "$home/shop/migrate"
begin shop "Migrate the orders table" "The dry run was fine: go on." "[[shell ./migrate all]]"
orders=$begun
begin website "Tidy up the build" "Yes, start from a clean tree." "[[permission]]"
build=$begun
begin docs "Write the release notes" "Name everybody who helped." "[[slow n=5000 ms=100]]"
notes=$begun
await 10 "the migration" test -e "$home/shop/started"
permission() { api GET "/api/session/$build/permission" | jq -e '.data | length == 1' >/dev/null; }
await 10 "the question for a permission" permission
await 10 "three sessions at work" is '.sessions.active | length == 3'

# --- the crash ---

kill -9 "$(status .server.pid)"
await 20 "the server, after its crash" is '.server.state == "running" and .server.restarts > 0'
crashed=$(executions)
await 10 "three pending sessions" is '.sessions.pending == 3'

# --- the tray ---

# start_tray NAME: with its icon in NAME.png. It says what is pending; where stands
# in x, y, w, h.
start_tray() {
  local said
  said=$(grep -c member=Notify "$root/log/listener" || true)
  start "tray-$1" "$bin" tray
  tray=$!
  await 10 "the icon" icon "$root/$1.png"
  await 10 "the notification" shown xfce4-notifyd
  read -r _ x y w h < <(windows xfce4-notifyd)
  if [ "$(grep -c '"3 sessions wait for you"' "$root/log/listener")" != $((said + 1)) ] ||
    [ "$(grep -c 'Nothing was resumed\."' "$root/log/listener")" != $((said + 1)) ]; then
    fail "the notification doesn't say that three sessions wait, and that nothing was resumed"
  fi
}

# open_menu: a click on the icon. The menu's window is then in $menu.
open_menu() {
  IFS='x+' read -r w h x y <<<"$(tray_place)"
  click $((x + w / 2)) $((y + h / 2))
  await 10 "the menu" menus_are 1
  menu=$(menus | cut -d ' ' -f 1)
}

# full ROWS: $menu has so many lines of text. A panel shows a submenu before it knows
# all that is in it.
full() { await 10 "a menu with $1 lines of text" menu_has "$1"; }

# row N ROWS: the pointer on the Nth line of text of $menu.
row() {
  full "$2"
  read -r x y w h < <(place "$menu")
  point $((x + w / 2)) "${heights[$1 - 1]}"
}
menu_has() {
  # shellcheck disable=SC2046  # its four words
  mapfile -t heights < <(rows $(place "$menu"))
  [ "${#heights[@]}" = "$1" ]
}
place() { menus | sed -n "s/^$1 //p"; }

# submenu N ROWS: the submenu of that line, open, and now in $menu.
submenu() {
  local before
  before=$(menus | cut -d ' ' -f 1)
  row "$1" "$2"
  await 10 "a submenu" menus_are $(($(wc -l <<<"$before") + 1))
  menu=$(menus | cut -d ' ' -f 1 | grep -vxF "$before")
}

# close_menu: a click beside it.
close_menu() {
  click 20 $((height - 20))
  await 10 "the menu's end" menus_are 0
}

# menu_picture FILE: all that is open of the menu, with the icon.
menu_picture() {
  # shellcheck disable=SC2046  # two words
  picture "$1" $(menus | awk 'NR == 1 || $2 < x { x = $2 } $3 + $5 > b { b = $3 + $5 } END { print x - 16, b + 16 }')
}

# --- in the dark ---

start listener dbus-monitor --session "interface='org.freedesktop.Notifications',member='Notify'"
await 10 "who listens for notifications" grep -q NameLost "$root/log/listener"

start_panel Adwaita:dark
start_tray dark
click $((x + 30)) $((y + 30)) # closes the notification
await 10 "the notification's end" not shown xfce4-notifyd
open_menu
submenu 2 7 # after the server's state; then Stop, Restart, log, login, Quit
submenu 2 3
full 8 # when, what was written, what ran, what is asked; then Resume, Dismiss, ID, terminal
menu_picture "$out/dark.png"
close_menu
open_menu
row 7 7
xdotool click 1
await 10 "the tray's end" not alive "$tray"
is '.server.state == "running"' || fail "the server ended with the tray"

# --- by day ---

start_panel Adwaita
look "$root/before.ppm"
start_tray pending
convert "$root/before.ppm" -crop "$(tray_place)" +repage "$root/none.png"
[ "$(differ "$root/none.png" "$root/pending.png")" -gt 100 ] || fail "the icon isn't to be seen"
picture "$out/notification.png" $((x - 16)) $((y + h + 16))
click $((x + 30)) $((y + 30))
await 10 "the notification's end" not shown xfce4-notifyd
open_menu
menu_picture "$out/menu.png"
submenu 2 7
submenu 1 3
row 4 7 # Resume, for nothing is asked
menu_picture "$out/pending.png"

# --- consent ---

[ "$(pending '[.pending[].id] | sort | join(" ")')" = "$(printf '%s\n' "$orders" "$build" "$notes" | sort | xargs)" ] || fail "not these three sessions are pending"
[ "$(executions)" = "$crashed" ] || fail "something was executed since the crash, with nobody's consent"
xdotool click 1
await 10 "the session's execution" asked "$orders" 3
await 10 "the session at work" is ".sessions.active == [\"$orders\"] and .sessions.pending == 2"
await 10 "the menu's end" menus_are 0

open_menu
submenu 3 8
submenu 1 1
full 6 # directory, since when, progress; then Interrupt, ID, terminal
menu_picture "$out/working.png"
close_menu

"$bin" dismiss "$build" >"$root/log/dismiss" 2>&1
"$bin" dismiss "$notes" >>"$root/log/dismiss" 2>&1
await 10 "no pending session" is '.sessions.pending == 0'
changed() { icon "$root/working.png" && [ "$(differ "$root/pending.png" "$root/working.png")" -gt 50 ]; }
await 10 "another icon" changed

[ "$(tail -n +$((crashed + 1)) "$root/requests" | jq -r .session)" = "$orders" ] || fail "not exactly the session that was consented to was executed, once"
[ "$(grep -c member=Notify "$root/log/listener")" = 2 ] || fail "there was more than one notification for each start of the tray"
printf '%s\n' "$out"/{notification,menu,pending,working,dark}.png
