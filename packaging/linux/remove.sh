#!/bin/sh
# Before the program is removed: by deb ("remove") and rpm (0 are left). An upgrade isn't
# a removal: it stops nothing.
#
# A supervisor that lost its program and its unit would lose its order at the next stop:
# systemd, once it has read its units anew, would end it and its server in the same
# moment. So each is told to end now, alone: it suspends what is at work, stops its server
# and exits, and no service manager starts it again. The trays go with them. The ledgers
# stay in the homes of their users.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac

program=/usr/bin/intermission

# started prints the ids of the processes that this very file runs with an argument.
started() {
	for process in /proc/[0-9]*; do
		if [ "$process/exe" -ef "$program" ] && tr '\0' '\n' <"$process/cmdline" | grep -qx "$1"; then
			echo "${process#/proc/}"
		fi
	done 2>/dev/null
}

# kept prints the ids of the processes that a service of ours holds, on this system and not
# in a container on it.
kept() {
	grep -ls '/intermission\.service$' /proc/[0-9]*/cgroup | while read -r file; do
		process=${file%/cgroup}
		if [ "$process/root" -ef / ]; then
			echo "${process#/proc/}"
		fi
	done
}

# Word by word: each is a number.
for pid in $(started tray); do
	kill -TERM "$pid" 2>/dev/null || true
done

# Where a supervisor was killed, the next comes in a second, as long as the program is
# there, and only a supervisor can end the server in order. So it's waited for, and told
# too; but a second after it is seen, since who can't yet hear that would die of it.
seen=$(started run)
told=" "
left=90     # seconds: a supervisor keeps its own deadline, which is shorter
patience=10 # seconds for the next supervisor
while :; do
	supervisors=$(started run)
	for pid in $supervisors; do
		case "$told" in *" $pid "*) continue ;; esac
		echo "$seen" | grep -qx "$pid" || continue
		[ "$told" != " " ] || echo "Intermission's supervisors are told to end: each suspends what is at work, and stops its server."
		told="$told$pid "
		kill -TERM "$pid" 2>/dev/null || true
	done
	seen=$supervisors
	if [ -n "$supervisors" ]; then
		[ $left -gt 0 ] || break
		left=$((left - 1))
	elif [ -z "$(kept)" ] || [ $patience -eq 0 ]; then
		break
	else
		patience=$((patience - 1))
	fi
	sleep 1
done

orphans=
if [ -n "$supervisors" ]; then
	echo "Not all have ended in 90 seconds: $(echo "$supervisors" | tr '\n' ' ')"
else
	orphans=$(kept | tr '\n' ' ')
	if [ -n "$orphans" ]; then
		echo "A server, or what it started, works on without a supervisor: ${orphans% }. End it yourself, or install Intermission again."
	elif [ "$told" != " " ]; then
		echo "They have ended. What was at work waits in the ledger of its user, for the next installation."
	fi
fi
if [ "$told" != " " ] || [ -n "$orphans" ]; then
	# Nobody's home is touched. systemctl disable removes the link when the unit is gone, too.
	echo "Where a user has enabled the service, a link to its unit is left. It does no harm; that user removes it by: systemctl --user disable intermission"
fi
