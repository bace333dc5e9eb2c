//go:build linux

package wine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// pipes is the module that our programs make pipes with.
const pipes = "github.com/Microsoft/go-winio"

// OpenCode's lock on Windows is a pipe that one process alone can make. On Wine 8 a
// second one makes it too, so that a supervisor has the lock of a server that lives,
// and parks what that works on; and the handle that only keeps the name takes the first
// client, who then waits for ever. These changes to the module give what is made with it
// Windows' behaviour: a mutex goes with the pipe, and with its process, and the handle
// has a client of its own.
var (
	pipeChanges = [][2]string{
		{"type win32PipeListener struct {\n", "type win32PipeListener struct {\n\talone, client windows.Handle\n"},
		{"\th, err := makeServerPipeHandle(path, sd, c, true)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n", `	name, err := alone(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := makeServerPipeHandle(path, sd, c, true)
	if err != nil {
		windows.Close(name)
		return nil, err
	}
	client, err := occupy(path)
	if err != nil {
		windows.Close(h)
		windows.Close(name)
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
`},
		{"\t\tfirstHandle: h,\n", "\t\tfirstHandle: h, alone: name, client: client,\n"},
		{"\twindows.Close(l.firstHandle)\n", "\twindows.Close(l.client)\n\twindows.Close(l.firstHandle)\n\twindows.Close(l.alone)\n"},
	}
	pipeAddition = `package winio

import (
	"strings"

	"golang.org/x/sys/windows"
)

func alone(path string) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString("Global\\" + strings.ReplaceAll(strings.ToLower(path), "\\", "/"))
	if err != nil {
		return 0, err
	}
	h, err := windows.CreateMutex(nil, false, name)
	if err == windows.ERROR_ALREADY_EXISTS {
		windows.Close(h)
		return 0, windows.ERROR_ACCESS_DENIED
	}
	return h, err
}

func occupy(path string) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	return windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_EXISTING, 0, 0)
}
`
)

// forPipes is made once: the file of modules that programs for this Windows are built by.
var forPipes struct {
	sync.Once
	modfile string
	err     error
}

// withPipes gives the go tool's flag to build with Windows' pipes, and makes what it needs in dir.
func withPipes(dir string) (flag string, err error) {
	forPipes.Do(func() { forPipes.modfile, forPipes.err = makePipes(dir) })
	return "-modfile=" + forPipes.modfile, forPipes.err
}

func makePipes(dir string) (modfile string, err error) {
	root := filepath.Join("..", "..")
	list := exec.Command("go", "mod", "download", "-json", pipes)
	list.Dir = root
	said, err := list.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(said, &module)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find %s: %w: %s", pipes, err, said)
	}
	changed := filepath.Join(dir, "pipes")
	if err := os.CopyFS(changed, os.DirFS(module.Dir)); err != nil {
		return "", err
	}
	path := filepath.Join(changed, "pipe.go")
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := string(source)
	for _, c := range pipeChanges {
		if strings.Count(text, c[0]) != 1 {
			return "", fmt.Errorf("%s is another by now: it has not once %q", path, c[0])
		}
		text = strings.Replace(text, c[0], c[1], 1)
	}
	modfile = filepath.Join(dir, "go.mod")
	err = errors.Join(
		os.WriteFile(path, []byte(text), 0o644),
		os.WriteFile(filepath.Join(changed, "alone_windows.go"), []byte(pipeAddition), 0o644),
		copyFile(modfile, filepath.Join(root, "go.mod")),
		copyFile(filepath.Join(dir, "go.sum"), filepath.Join(root, "go.sum")))
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "mod", "edit", "-replace="+pipes+"="+changed, modfile).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go mod edit: %w: %s", err, out)
	}
	return modfile, nil
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
