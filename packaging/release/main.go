// Command release builds what a release of Intermission consists of: packages,
// archives, an installer, manifests, checksums and a bill of materials.
//
//	go run ./packaging/release -version 1.2.3 -out DIRECTORY deb,rpm
//
// It works in a checkout, with or without .git. Programs are built once for each
// system and go into each format from there. Nothing that it writes depends on the
// place, the clock, the user or the order of a directory: two builds of one commit
// by one Go have the same bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// format is a thing that can be asked for.
type format struct {
	name  string
	build func(*release) error
}

// formats in the order in which they are built. The manifests hold the checksums of
// what came before them in the same run.
var formats = []format{
	{"deb", func(r *release) error { return r.linuxPackage("deb", "amd64") }},
	{"deb-arm64", func(r *release) error { return r.linuxPackage("deb", "arm64") }},
	{"rpm", func(r *release) error { return r.linuxPackage("rpm", "amd64") }},
	{"rpm-arm64", func(r *release) error { return r.linuxPackage("rpm", "arm64") }},
	{"linux", func(r *release) error { return r.archive("linux", "amd64") }},
	{"linux-arm64", func(r *release) error { return r.archive("linux", "arm64") }},
	{"darwin", func(r *release) error { return r.archive("darwin", "amd64") }},
	{"darwin-arm64", func(r *release) error { return r.archive("darwin", "arm64") }},
	{"windows", func(r *release) error { return r.archive("windows", "amd64") }},
	{"windows-arm64", func(r *release) error { return r.archive("windows", "arm64") }},
	{"setup", func(r *release) error { return r.installer("amd64") }},
	{"setup-arm64", func(r *release) error { return r.installer("arm64") }},
	{"homebrew", (*release).homebrew},
	{"winget", (*release).winget},
	{"aur", (*release).aur},
	{"sbom", (*release).sbom},
	{"sums", (*release).sums},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "the version, such as 1.2.3; git's without it")
	out := flags.String("out", ".cache/packages", "the `directory` for what is built")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	r, err := newRelease(ctx, root, *out, *version)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work) //nolint:errcheck // the next build clears it
	for _, f := range chosen {
		if err := f.build(r); err != nil {
			return fmt.Errorf("cannot build %s: %w", f.name, err)
		}
	}
	for _, name := range r.made {
		fmt.Println(filepath.Join(r.out, name))
	}
	if r.downloads == "" && slices.ContainsFunc(chosen, func(f format) bool { return f.name == "aur" || f.name == "homebrew" || f.name == "winget" }) {
		fmt.Fprintln(os.Stderr, "release:", noDownloads)
	}
	return nil
}

// choose finds the formats that are named, with commas between them; "all" are all.
func choose(names []string) (chosen []format, err error) {
	names = strings.FieldsFunc(strings.Join(names, ","), func(r rune) bool { return r == ',' })
	if slices.Equal(names, []string{"all"}) {
		return formats, nil
	}
	known := []string{"all"}
	for _, f := range formats {
		known = append(known, f.name)
		if slices.Contains(names, f.name) {
			chosen = append(chosen, f)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no format is called %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("name a format: %s", strings.Join(known, ", "))
	}
	return chosen, nil
}

// findRoot is the checkout around the working directory.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module intermission\n") {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("no checkout of intermission is here or above; change into one")
		}
		dir = above
	}
}
