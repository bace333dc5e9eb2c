package platform

import "strings"

// runCommand words argv as the value of a Run key: a command line as
// CommandLineToArgvW of Windows takes it apart again.
func runCommand(argv []string) string {
	var b strings.Builder
	for i, arg := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		// The program is quoted always: without, its first word could be another program.
		if i > 0 && arg != "" && !strings.ContainsAny(arg, " \t\"") {
			b.WriteString(arg)
			continue
		}
		b.WriteByte('"')
		slashes := 0
		for j := range len(arg) {
			switch arg[j] {
			case '\\':
				slashes++
			case '"': // backslashes count only before a quote
				b.WriteString(strings.Repeat(`\`, slashes+1))
				slashes = 0
			default:
				slashes = 0
			}
			b.WriteByte(arg[j])
		}
		b.WriteString(strings.Repeat(`\`, slashes))
		b.WriteByte('"')
	}
	return b.String()
}

// startupDisapproved tells whether Task Manager or the settings have switched off
// the program of a Run key: the value of its name in StartupApproved\Run begins
// with an odd byte (3 by Task Manager), and with an even one when it is on. No
// value is on. (The format isn't documented by Microsoft; this is what is seen.)
func startupDisapproved(value []byte) bool { return len(value) > 0 && value[0]&1 == 1 }
