package platform

// beeepText has nothing to escape: the notification centre takes plain text, and
// for its fallback, a script, beeep quotes by itself.
func beeepText(s string) string { return s }
