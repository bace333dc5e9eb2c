package platform

// beeepText escapes for the toast's XML, which go-toast makes of a text template.
func beeepText(s string) string { return toastText(s) }
