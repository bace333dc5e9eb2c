package platform

// ThenShell is a command line for a terminal that runs argv, and then leaves its
// user in a shell, so that what was printed can be read.
func ThenShell(argv []string) []string { return thenShell(argv) }
