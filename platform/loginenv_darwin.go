package platform

// recordedShell is macOS's own default: launchd sets SHELL for whatever it starts for a user.
func recordedShell(int) string { return "/bin/zsh" }
