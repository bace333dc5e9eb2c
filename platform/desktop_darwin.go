package platform

// desktopKey is the same always: a user has one graphical session on a Mac.
func desktopKey() (string, error) { return "aqua", nil }
