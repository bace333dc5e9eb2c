package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Who publishes, and where: until the project has a place of its own it is a name that
// can belong to nobody (RFC 2606). What is downloaded stands under $DOWNLOADS.
const (
	publisher  = "The Intermission authors"
	maintainer = publisher + " <maintainers@intermission.example>"
	homepage   = "https://intermission.example"
	summary    = "supervisor for the OpenCode server that asks before a session goes on"
)

// release is one run of this program.
type release struct {
	source
	ctx       context.Context
	root      string              // the checkout
	out       string              // what is built
	work      string              // what is made on the way
	downloads string              // where the files will be downloaded from; "" where that isn't known
	made      []string            // names below out, in the order of their making
	binaries  map[string]string   // by system and architecture, those that are built
	modules   map[string][]module // the same, what is linked into them
	staged    bool
}

func newRelease(ctx context.Context, root, out, asked string) (*release, error) {
	s, err := findSource(ctx, root, asked)
	if err != nil {
		return nil, err
	}
	if out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the directory for the packages: %w", err)
	}
	work := filepath.Join(out, ".work")
	if err := os.RemoveAll(work); err != nil {
		return nil, fmt.Errorf("cannot clear what an earlier build has left: %w", err)
	}
	return &release{
		source: s, ctx: ctx, root: root, out: out, work: work, downloads: strings.TrimRight(os.Getenv("DOWNLOADS"), "/"),
		binaries: map[string]string{}, modules: map[string][]module{},
	}, nil
}

// path is a file of the checkout.
func (r *release) path(name string) string { return filepath.Join(r.root, filepath.FromSlash(name)) }

// output runs a tool and returns its standard output.
func (r *release) output(env []string, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(r.ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10), "TZ=UTC", "LC_ALL=C.UTF-8")
	cmd.Env = append(cmd.Env, env...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", filepath.Base(name), err, out, &complaints)
	}
	return out, nil
}

// binary builds the program for a system, once, and returns its path.
func (r *release) binary(system, arch string) (string, error) {
	target := system + "-" + arch
	if path, built := r.binaries[target]; built {
		return path, nil
	}
	path := filepath.Join(r.work, "bin", target, "intermission")
	if system == "windows" {
		path += ".exe"
	}
	// GOFLAGS and the architecture's levels would come from the environment.
	env := []string{"GOOS=" + system, "GOARCH=" + arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT="}
	if _, err := r.output(env, r.root, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+string(r.version), "-o", path, "."); err != nil {
		return "", err
	}
	r.binaries[target] = path
	return path, nil
}

// ours is the program itself, run here for what it tells of itself.
func (r *release) ours(args ...string) ([]byte, error) {
	env, err := goEnv(r)
	if err != nil {
		return nil, err
	}
	path, err := r.binary(env[0], env[1])
	if err != nil {
		return nil, err
	}
	return r.output(nil, r.root, path, args...)
}

func goEnv(r *release) ([]string, error) {
	out, err := r.output(nil, r.root, "go", "env", "GOHOSTOS", "GOHOSTARCH")
	return strings.Fields(string(out)), err
}

// write writes a file, and the directories above it. Modes are set whatever the umask is.
func write(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
