//go:build !linux

package platform

func holders(string) ([]Holder, error) { return nil, nil }
