//go:build !linux

package platform

func foreignRuntimeDir(func(string) string) string { return "" }

func noUserManager() bool { return false }

func timeServiceAct() string { return "let the system set its clock, in its settings of date and time" }
