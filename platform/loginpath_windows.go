package platform

import (
	"context"
	"errors"
	"os"
)

// LoginPath is PATH as it is: Windows gives the user's whole PATH to everything it starts.
func LoginPath(context.Context) (string, error) {
	path := os.Getenv("PATH")
	if path == "" {
		return "", errors.New("PATH isn't set")
	}
	return path, nil
}
