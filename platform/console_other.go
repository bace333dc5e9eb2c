//go:build !windows

package platform

func hideConsole() {}
