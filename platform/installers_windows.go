package platform

// InstallerPlaces is none: on Windows variables name them (APPDATA, LOCALAPPDATA).
func InstallerPlaces(string) []string { return nil }
