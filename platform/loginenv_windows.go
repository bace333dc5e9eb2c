package platform

import (
	"context"
	"errors"
	"os"
	"strings"
)

// LoginAsking means nothing on Windows: no shell is asked.
const LoginAsking = "INTERMISSION_ASKING"

// LoginEnvironment is the environment as it is: Windows gives the user's whole
// environment to everything that it starts, services under their account too.
func LoginEnvironment(_ context.Context, given []string) ([]string, error) {
	if given == nil {
		given = os.Environ()
	}
	return given, nil
}

// LoginPath is PATH as it is.
func LoginPath(context.Context) (string, error) {
	path := os.Getenv("PATH")
	if path == "" {
		return "", errors.New("PATH isn't set")
	}
	return path, nil
}

// VariableKey is the same for all spellings of one variable's name: Windows tells no case.
func VariableKey(name string) string { return strings.ToUpper(name) }
