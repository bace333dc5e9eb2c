# A desktop of its own for make.sh: an X server without a screen, a session bus on
# which nothing starts by itself, a window manager, a panel and a notification
# daemon. Everything lives below $root, carries its HOME in the environment, and is
# found again by it at the end. Of make.sh it needs here, out, root and home.
# shellcheck shell=bash disable=SC2154

# The tools, each with its Debian package.
tools="Xvfb:xvfb dbus-daemon:dbus dbus-send:dbus dbus-monitor:dbus openbox:openbox xfce4-panel:xfce4-panel
xdotool:xdotool import:imagemagick convert:imagemagick display:imagemagick fc-list:fontconfig curl:curl jq:jq"
font=Cantarell font_size=10

# lib PATTERN: a file that is found in no PATH, "" where there is none.
lib() { compgen -G "/usr/lib/*/$1" | head -n 1 || true; }
xfconfd=$(lib xfce4/xfconf/xfconfd)
notifyd=$(lib xfce4/notifyd/xfce4-notifyd)

# missing: the packages that are not there, "" for none.
missing() {
  local tool absent=()
  for tool in $tools; do
    command -v "${tool%%:*}" >/dev/null || absent+=("${tool#*:}")
  done
  [ -n "$xfconfd" ] || absent+=(xfconf)
  [ -n "$notifyd" ] || absent+=(xfce4-notifyd)
  [ -n "$(lib xfce4/panel/plugins/libsystray.so)" ] || absent+=(xfce4-panel)
  [ -n "$(lib gdk-pixbuf-2.0/*/loaders/libpixbufloader-svg.so)" ] || absent+=(librsvg2-common)
  [ -n "$(fc-list "$font" 2>/dev/null)" ] || absent+=(fonts-cantarell)
  printf '%s\n' "${absent[@]}" | sort -u | xargs
}

fail() {
  trap - ERR
  echo "make.sh: $*" >&2
  tail -n 5 "$root"/log/* >&2 2>/dev/null || true
  if import -silent -window root "$out/failure.png" 2>/dev/null; then echo "The screen: $out/failure.png" >&2; fi
  exit 1
}

# await SECONDS WHAT CHECK...: looks until the check succeeds.
await() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "$what: not within the time"
    sleep 0.05
  done
}

# start NAME COMMAND...: in the background, its output in a log. Its pid is then in $!.
start() {
  local name=$1
  shift
  "$@" >"$root/log/$name" 2>&1 3>&- &
}

# ours: the processes that were started with our HOME, which this script was not.
ours() {
  local dir
  while read -r dir; do echo "${dir//[^0-9]/}"; done < <(grep -lszxF "HOME=$home" /proc/[0-9]*/environ)
}

# end SIGNAL PID...: and waits for them, at most 5 s.
end() {
  local signal=$1 pid until=$((SECONDS + 5))
  shift
  for pid; do kill -"$signal" "$pid" 2>/dev/null || true; done
  for pid; do
    while [ $SECONDS -lt $until ] && alive "$pid"; do sleep 0.02; done
  done
}

alive() { kill -0 "$1" 2>/dev/null; }

# make_home lays out an empty home with the settings of the desktop.
make_home() {
  local name
  for name in $(compgen -e); do
    case $name in XDG_* | INTERMISSION_* | OPENCODE_* | GTK_* | GDK_* | DBUS_* | DISPLAY | WAYLAND_DISPLAY | XAUTHORITY | SESSION_MANAGER) unset "$name" ;; esac
  done
  export HOME=$home XDG_CONFIG_HOME=$home/.config XDG_CACHE_HOME=$home/.cache XDG_DATA_HOME=$home/.local/share \
    XDG_STATE_HOME=$home/.local/state XDG_RUNTIME_DIR=$root/run LC_ALL=C.UTF-8 TMPDIR=$root/tmp \
    GDK_BACKEND=x11 GSETTINGS_BACKEND=memory GIO_USE_VFS=local NO_AT_BRIDGE=1 GTK_THEME=Adwaita
  mkdir -m 700 "$root"/{run,tmp,log}
  mkdir -p "$XDG_CACHE_HOME" "$XDG_DATA_HOME" "$XDG_STATE_HOME" "$XDG_CONFIG_HOME"/{gtk-3.0,xfce4/xfconf/xfce-perchannel-xml}
  sed "s/@FONT@/$font $font_size/" "$here/panel.xml" >"$XDG_CONFIG_HOME/xfce4/xfconf/xfce-perchannel-xml/xfce4-panel.xml"
  cat >"$XDG_CONFIG_HOME/gtk-3.0/settings.ini" <<-END
	[Settings]
	gtk-font-name=$font $font_size
	gtk-icon-theme-name=Adwaita
	gtk-xft-antialias=1
	gtk-xft-hinting=1
	gtk-xft-hintstyle=hintslight
	gtk-xft-rgba=none
	gtk-enable-animations=0
	END
  cat >"$XDG_CONFIG_HOME/xfce4/xfconf/xfce-perchannel-xml/xfce4-notifyd.xml" <<-END
	<channel name="xfce4-notifyd" version="1.0">
	  <property name="notify-location" type="uint" value="2"/>
	  <property name="initial-opacity" type="double" value="1"/>
	  <property name="do-fadeout" type="bool" value="false"/>
	  <property name="do-slideout" type="bool" value="false"/>
	</channel>
	END
  cat >"$root/bus.conf" <<-END
	<busconfig>
	  <type>session</type>
	  <listen>unix:path=$root/run/bus</listen>
	  <policy context="default">
	    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
	  </policy>
	</busconfig>
	END
}

width=1000 height=400

# start_desktop starts everything but the panel. The X server takes a free number by itself.
start_desktop() {
  Xvfb -displayfd 4 -screen 0 ${width}x${height}x24 -nolisten tcp 4>"$root/display" >"$root/log/xvfb" 2>&1 &
  await 10 "the X server" test -s "$root/display"
  DISPLAY=:$(cat "$root/display")
  export DISPLAY DBUS_SESSION_BUS_ADDRESS=unix:path=$root/run/bus
  convert -size ${width}x${height} "gradient:#5b7f95-#2f4858" "$root/wall.png"
  display -window root "$root/wall.png" || true # its exit status is 1 even so
  start bus dbus-daemon --config-file="$root/bus.conf" --nofork
  await 10 "the session bus" test -S "$root/run/bus"
  start xfconf "$xfconfd"
  await 10 "the desktop's settings" owned org.xfce.Xfconf
  start openbox openbox
  start notifyd "$notifyd"
  await 10 "the notification daemon" owned org.freedesktop.Notifications
}

# owned NAME: somebody has the name on the bus.
owned() {
  dbus-send --session --print-reply --dest=org.freedesktop.DBus /org/freedesktop/DBus \
    org.freedesktop.DBus.NameHasOwner "string:$1" 2>/dev/null | grep -q 'boolean true'
}

not() { ! "$@"; }

# start_panel THEME: with the one before ended.
start_panel() {
  if [ -n "${panel-}" ]; then
    kill "$panel"
    await 10 "the end of the panel" not alive "$panel" # while it lives, another one gives up
    await 10 "the end of the panel's tray" not owned org.kde.StatusNotifierWatcher
  fi
  GTK_THEME=$1 start "panel-$1" xfce4-panel --disable-wm-check
  panel=$!
  await 20 "the panel's tray" owned org.kde.StatusNotifierWatcher
  await 15 "the panel" shown xfce4-panel
}

# windows CLASS: those that are to be seen, with place and size: "ID X Y WIDTH HEIGHT".
windows() {
  local id
  for id in $(xdotool search --onlyvisible --class "$1" 2>/dev/null); do
    xdotool getwindowgeometry --shell "$id" 2>/dev/null |
      awk -F= '{ v[$1] = $2 } END { if (v["WIDTH"] > 10) print v["WINDOW"], v["X"], v["Y"], v["WIDTH"], v["HEIGHT"] }'
  done
}
shown() { [ -n "$(windows "$1")" ]; }

# The tray's place in the panel is a window of a process of its own, and so are its menus: all others of it.
tray_place() { windows wrapper-2.0 | awk '$3 == 0 { print $4 "x" $5 "+" $2 "+" $3 }'; }
menus() { windows wrapper-2.0 | awk '$3 > 0'; }
menus_are() { [ "$(menus | wc -l)" = "$1" ]; }

# icon FILE: a picture of the tray's place; it fails while there is no icon in it.
icon() {
  local place
  place=$(tray_place)
  [ -n "$place" ] || return 1
  import -silent -depth 8 -window root "$root/icon.ppm"
  convert "$root/icon.ppm" -crop "$place" +repage "$1"
  [ "$(convert "$1" -format %k info:)" -gt 10 ] # an empty panel has but a few colours
}

# differ A B: how many pixels are not the same.
differ() { convert "$1" "$2" -metric AE -compare -format '%[distortion]' info:; }

# look FILE: a picture of the screen, in PPM, once two in a row are the same.
look() {
  local end=$((SECONDS + 10)) next=$root/next.ppm
  import -silent -depth 8 -window root "$1"
  while :; do
    sleep 0.1
    import -silent -depth 8 -window root "$next"
    if cmp -s "$1" "$next"; then break; fi
    [ $SECONDS -lt $end ] || fail "the screen does not come to rest"
    mv "$next" "$1"
  done
}

# rows X Y WIDTH HEIGHT: the lines of text in the menu there, from top to bottom, each
# by the height of its middle on the screen. The pointer must be elsewhere.
rows() {
  local at="$(($3 - 8))x$(($4 - 8))+$(($1 + 4))+$(($2 + 4))" paper
  look "$root/rows.ppm"
  paper=$(convert "$root/rows.ppm" -crop "$at" +repage -format '%[pixel:p{2,2}]' info:)
  # What isn't paper becomes magenta, the rest black; then each line of pixels is one.
  convert "$root/rows.ppm" -crop "$at" +repage -fuzz 25% -fill magenta +opaque "$paper" -fill black -opaque "$paper" \
    -scale '1x!' -depth 8 txt:- | awk -F'[,:( ]+' -v top=$(($2 + 4)) '
      function row() { if (last - first > 4) print top + int((first + last) / 2) }
      /^[0-9]/ && $3 > 0 { if ($2 - last > 4) { row(); first = $2 } last = $2 }
      BEGIN { first = last = -9 }
      END { row() }'
}

# point X Y, click X Y
point() { xdotool mousemove "$1" "$2"; }
click() { xdotool mousemove "$1" "$2" click 1; }

# picture FILE X BOTTOM: the screen from X to its right edge, from its top to BOTTOM,
# but no narrower than shows a piece of the panel.
picture() {
  local x=$((width - $2 < 420 ? width - 420 : $2))
  look "$root/picture.ppm"
  convert "$root/picture.ppm" -crop "$((width - x))x$3+$x+0" +repage +dither -colors 255 -strip \
    -define png:exclude-chunks=all -define png:include-chunks=tRNS -define png:compression-level=9 "PNG8:$1"
}
