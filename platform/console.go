package platform

// HideConsole hides the console window that Windows makes for a program of ours that
// it starts by itself, at login. A console that others are on, as that of a shell,
// stays as it is; elsewhere there is nothing to hide.
func HideConsole() { hideConsole() }
