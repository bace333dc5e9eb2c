//go:build !linux

package platform

import "errors"

func processEnvironment(int) ([]string, error) {
	return nil, errors.New("the system doesn't tell the environment of a process")
}
