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

# unguarded prints the ids of the processes that a service of ours holds, on this system and
# not in a container on it, while no supervisor runs: one died, and the next starts in a second.
unguarded() {
	[ -z "$(started run)" ] || return 0
	for process in /proc/[0-9]*; do
		if grep -qs '/intermission\.service$' "$process/cgroup" && [ "$process/root" -ef / ]; then
			echo "${process#/proc/}"
		fi
	done 2>/dev/null
}

# It is waited for, since only a supervisor can end its server in order.
left=10
while [ $left -gt 0 ] && [ -n "$(unguarded)" ]; do
	sleep 1
	left=$((left - 1))
done
if [ $left -eq 0 ]; then
	echo "A server works on without a supervisor, and none comes: $(unguarded | tr '\n' ' '). End it yourself, or install intermission again."
fi

trays=$(started tray)
supervisors=$(started run)
# Word by word: each is a number.
for pid in $trays $supervisors; do
	kill -TERM "$pid" 2>/dev/null || true
done
if [ -n "$supervisors" ]; then
	echo "Intermission's supervisors are told to end: each suspends what is at work, and stops its server."
	left=90 # seconds: a supervisor keeps its own deadline, which is shorter
	while [ $left -gt 0 ] && [ -n "$(started run)" ]; do
		sleep 1
		left=$((left - 1))
	done
	if [ $left -gt 0 ]; then
		echo "They have ended. What was at work waits in the ledger of its user, for the next installation."
	else
		echo "Not all have ended in 90 seconds: $(started run | tr '\n' ' ')"
	fi
	# Nobody's home is touched. systemctl disable removes the link when the unit is gone, too.
	echo "Where a user has enabled the service, a link to its unit is left. It does no harm; that user removes it by: systemctl --user disable intermission"
fi
