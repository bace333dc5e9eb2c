package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"intermission/assets"
	"intermission/platform"
	"intermission/tray"
)

const (
	nfpmVersion = "v2.45.2"               // 2.46 to 2.48 can't be built from the module proxy
	installed   = "/usr/bin/intermission" // where a Linux package has the program
)

// linuxPackage builds one package with nfpm, by packaging/linux/nfpm.yaml.
func (r *release) linuxPackage(kind, arch string) error {
	program, err := r.binary("linux", arch)
	if err != nil {
		return err
	}
	modules, err := r.linked("linux", arch)
	if err != nil {
		return err
	}
	if err := r.stage(); err != nil {
		return err
	}
	own, err := os.ReadFile(r.path("LICENSE"))
	if err != nil {
		return err
	}
	if err := write(r.stagedPath("copyright"), []byte(debianCopyright(string(own), modules)), 0o644); err != nil {
		return err
	}
	if err := write(r.stagedPath("THIRD-PARTY-LICENSES"), []byte(notices(modules)), 0o644); err != nil {
		return err
	}
	config, err := r.fill("packaging/linux/nfpm.yaml", map[string]any{
		"Deb": kind == "deb", "Arch": arch, "Version": r.version.linux(), "Maintainer": maintainer, "Publisher": publisher,
		"Homepage": homepage, "Summary": summary, "Title": strings.ToUpper(summary[:1]) + summary[1:], "License": expression(modules), "Time": r.time.Format(time.RFC3339),
		"Root": r.root, "Stage": r.stagedPath(""), "Program": program, "Sizes": iconSizes,
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("intermission_%s_%s.deb", r.version.linux(), arch)
	if kind == "rpm" {
		name = fmt.Sprintf("intermission-%s-1.%s.rpm", r.version.linux(), map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch])
	}
	configFile := filepath.Join(r.work, name+".yaml")
	if err := write(configFile, config, 0o644); err != nil {
		return err
	}
	nfpm, err := r.nfpm()
	if err != nil {
		return err
	}
	if _, err := r.output(nil, r.root, nfpm, "package", "--config", configFile, "--packager", kind, "--target", filepath.Join(r.out, name)); err != nil {
		return err
	}
	r.made = append(r.made, name)
	return nil
}

// nfpm is the tool that makes deb and rpm. It is built from the module proxy when it
// isn't there: 27 s on two cores, once.
func (r *release) nfpm() (string, error) {
	dir := r.path(".cache/tools/nfpm-" + nfpmVersion)
	path := filepath.Join(dir, "nfpm")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	_, err := r.output([]string{"GOBIN=" + dir, "CGO_ENABLED=0", "GOFLAGS="}, r.root, "go", "install", "github.com/goreleaser/nfpm/v2/cmd/nfpm@"+nfpmVersion)
	return path, err
}

// fill puts values into a template of the checkout.
func (r *release) fill(name string, values any) ([]byte, error) {
	text, err := os.ReadFile(r.path(name))
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, values); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (r *release) stagedPath(name string) string {
	return filepath.Join(r.work, "stage", filepath.FromSlash(name))
}

// stage makes, once, the files that go beside the program on Linux, each by the
// code that makes or reads it elsewhere.
func (r *release) stage() error {
	if r.staged {
		return nil
	}
	unit, err := platform.PackagedUnit(string(r.version))
	if err != nil {
		return err
	}
	changelog, err := r.changelog()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"intermission.service": []byte(unit),
		"intermission.svg":     assets.LogoSVG(),
		"changelog.gz":         compressed([]byte(changelog.debian)),
		"changelog.yaml":       changelog.nfpm,
	}
	if files["intermission.1"], err = r.ours("man", r.time.Format(time.DateOnly)); err != nil {
		return err
	}
	files["intermission.1.gz"] = compressed(files["intermission.1"])
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if files["completion."+shell], err = r.ours("completion", shell); err != nil {
			return err
		}
	}
	for name, data := range files {
		if err := write(r.stagedPath(name), data, 0o644); err != nil {
			return err
		}
	}
	if err := r.desktopEntries(); err != nil {
		return err
	}
	r.staged = true
	return nil
}

// desktopEntries stages what the tray writes for a user, as it stands when it was
// switched on and then off: in the menu, and not started at login. A package that
// starts it for every user of a machine would do so for those who don't know it.
// Who switches it on, in its menu or in the desktop's settings, gets a file of their
// own, which hides this one.
func (r *release) desktopEntries() error {
	scratch := r.stagedPath("scratch")
	restore := environment(map[string]string{
		"XDG_CONFIG_HOME": filepath.Join(scratch, "etc"), "XDG_CONFIG_DIRS": filepath.Join(scratch, "none"),
		"XDG_DATA_HOME": filepath.Join(scratch, "share"), "XDG_DATA_DIRS": filepath.Join(scratch, "none"),
	})
	defer restore()
	if err := tray.StartAtLogin(installed, true); err != nil {
		return err
	}
	_ = os.Setenv("XDG_CONFIG_DIRS", filepath.Join(scratch, "etc"))
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(scratch, "off"))
	if err := tray.StartAtLogin(installed, false); err != nil {
		return err
	}
	for from, to := range map[string]string{
		"share/applications/intermission.desktop": "intermission.desktop",
		"off/autostart/intermission-tray.desktop": "intermission-tray.desktop",
	} {
		text, err := os.ReadFile(filepath.Join(scratch, filepath.FromSlash(from)))
		if err != nil {
			return fmt.Errorf("the tray has not written its entry: %w", err)
		}
		if err := write(r.stagedPath(to), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// environment sets variables of this process, and returns what sets them back.
func environment(values map[string]string) (restore func()) {
	old := map[string]string{}
	for name, value := range values {
		if was, set := os.LookupEnv(name); set {
			old[name] = was
		}
		_ = os.Setenv(name, value)
	}
	return func() {
		for name := range values {
			if was, set := old[name]; set {
				_ = os.Setenv(name, was)
			} else {
				_ = os.Unsetenv(name)
			}
		}
	}
}

// compressed is what gzip -9n makes: no name and no time.
func compressed(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(data) // a buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// iconSizes are those of hicolor below 256, which the program itself has.
var iconSizes = []int{16, 22, 24, 32, 48, 64, 128}
