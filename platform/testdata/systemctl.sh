#!/bin/sh
# systemctl, loginctl and journalctl, as far as the tests need a manager. It knows a
# unit as it was at the last daemon-reload, and enables what it knows.
# FAKE_MANAGER is its directory: VERB.fails holds the words with which a command
# fails, VERB.hangs makes it hang, props overrides properties, log has what was done.
# With is-system it is the system's manager that has the unit.
cd "$FAKE_MANAGER" || exit 9
case ${0##*/} in
journalctl)
	[ ! -e journal ] || cat journal
	exit 0 ;;
esac
system=
while :; do
	case ${1-} in
	--system) system=yes ;;
	-*) ;;
	*) break ;;
	esac
	shift
done
verb=$1
shift
[ "$verb" = show ] || echo "$verb" >>log
[ -z "${NOTIFY_SOCKET-}" ] || echo "inherited NOTIFY_SOCKET" >>log
[ ! -e "$verb.hangs" ] || exec sleep 60
if [ -e "$verb.fails" ]; then
	cat "$verb.fails" >&2
	exit 1
fi
unit=intermission.service
own=$PWD/config/systemd/user
[ -z "$system" ] || own=$PWD/system
link=$own/default.target.wants/$unit
file=
have=
[ ! -e is-system ] || have=yes
if [ "$system" = "$have" ]; then
	for dir in "$own" "$PWD/usr/systemd/user"; do
		if [ -e "$dir/$unit" ]; then
			file=$dir/$unit
			break
		fi
	done
fi
case $verb in
enable-linger) : >"linger/$1" ;;
disable-linger) rm "linger/$1" ;;
daemon-reload)
	rm -f loaded
	[ -z "$file" ] || cp "$file" loaded ;;
enable | reenable)
	if [ ! -e loaded ]; then
		echo "Unit file $unit does not exist." >&2
		exit 1
	fi
	mkdir -p "${link%/*}"
	ln -sf "$file" "$link" ;;
disable)
	rm -f "$link"
	[ ! -d "${link%/*}" ] || rmdir "${link%/*}" ;;
start) : >active ;;
stop) rm -f active ;;
show)
	case $* in
	*=UnitPath)
		echo "UnitPath=\"$own.control\" /run/user/7/systemd/user \"$own\" /nowhere/systemd/user \"$PWD/usr/systemd/user\""
		exit 0 ;;
	esac
	if [ -e loaded ] && [ -n "$file" ]; then
		printf 'LoadState=loaded\nFragmentPath=%s\n' "$file"
		echo "ExecStart={ path=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' loaded) ; argv[]=x ; ignore_errors=no }"
		grep '^User=' loaded
		cmp -s loaded "$file" || echo NeedDaemonReload=yes
	else
		echo LoadState=not-found
	fi
	[ ! -L "$link" ] || [ -z "$file" ] || echo UnitFileState=enabled
	if [ -e active ]; then
		printf 'ActiveState=active\nSubState=running\nMainPID=4711\nStatusText=2 sessions pending\nResult=success\n'
	else
		printf 'ActiveState=inactive\nSubState=dead\nMainPID=0\nResult=success\n'
	fi
	[ ! -e props ] || cat props ;;
esac
