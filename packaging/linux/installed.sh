#!/bin/sh
# After the installation: of deb ("configure", the version before) and of rpm (how many
# are installed). Nothing is enabled or started: whether a supervisor runs is each user's
# choice. After an upgrade a supervisor sees that its program was replaced, and hands its
# server over to the new one by itself; and who adopts doesn't stop.
set -e
hint="Each user installs the background service with: intermission service install; who has had it before starts it with: intermission service start"
case "$1:$2" in
configure: | 1:*) echo "$hint" ;;
configure:*)
	# After a removal dpkg gives the version before, too: it's no upgrade where nothing runs.
	grep -qs '/intermission\.service$' /proc/[0-9]*/cgroup || echo "$hint"
	;;
esac
