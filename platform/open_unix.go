//go:build unix

package platform

func thenShell(argv []string) []string {
	return append([]string{"/bin/sh", "-c", `"$@"; exec "${SHELL:-/bin/sh}"`, "sh"}, argv...)
}
