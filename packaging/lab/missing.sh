#!/bin/sh
# Prints the Debian packages that a machine of the lab needs and this system hasn't, a
# line each. Who isn't root has no machine, and needs none of them.
[ "$(id -u)" -eq 0 ] || exit 0
while read -r needed package; do
	# A pattern, since a file's directory may be named by the architecture.
	# shellcheck disable=SC2086
	case $needed in
	/*) ls -d $needed >/dev/null 2>&1 ;;
	*) command -v "$needed" >/dev/null ;;
	esac || echo "$package"
done <<-END
	systemd-nspawn systemd-container
	dbus-daemon dbus
	/usr/lib/systemd/user/dbus.socket dbus-user-session
	/usr/lib/*/security/pam_systemd.so libpam-systemd
	/usr/lib/polkit-1/polkitd polkitd
	nsenter util-linux
	/usr/sbin/useradd passwd
	ps procps
END
