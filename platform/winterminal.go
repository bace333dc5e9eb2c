package platform

import (
	"fmt"
	"path/filepath"
	"strings"
)

// terminalTabCommand is the command line of Windows Terminal for argv: everything
// from the first word on that is no option is the command. It parts commands at
// ";", in an argument too.
func terminalTabCommand(wt string, argv []string, dir string) []string {
	command := []string{wt, "-w", "new"}
	if dir != "" {
		command = append(command, "-d", escapeSemicolons(dir))
	}
	for _, arg := range argv {
		command = append(command, escapeSemicolons(arg))
	}
	return command
}

func escapeSemicolons(s string) string { return strings.ReplaceAll(s, ";", `\;`) }

// checkBatch refuses arguments of a batch file in which cmd.exe, which runs it,
// would find something of its own, quotes or not.
func checkBatch(argv []string) error {
	switch strings.ToLower(filepath.Ext(argv[0])) {
	case ".bat", ".cmd":
	default:
		return nil
	}
	for _, arg := range argv[1:] {
		if strings.ContainsAny(arg, "\"%!^&|<>()\r\n") {
			return fmt.Errorf("the batch file %s can't be given the argument %q safely", argv[0], arg)
		}
	}
	return nil
}
