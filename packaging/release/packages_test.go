package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tool finds a program that a test is made of; under CI it must be there.
func tool(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing; Debian: apt-get install %s", name, debian)
		}
		t.Skipf("%s is missing; Debian: apt-get install %s", name, debian)
	}
	return path
}

// output runs a program that must succeed.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, &complaints)
	}
	return string(out)
}

func checkout(t *testing.T) string {
	t.Helper()
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

const packaged = "1.2.3-rc.1"

// packages builds, once for all tests, what is quick: all of one system, by two runs in
// two places, which packaging/check.sh compares.
var packages = sync.OnceValues(func() (string, error) {
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "intermission-packages-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("packaging/check.sh", "deb,rpm,linux,sums", packaged, dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "stands-in") {
		standIn()
	}
	status := m.Run()
	if built {
		dir, _ := packages()
		_ = os.RemoveAll(dir)
	}
	os.Exit(status)
}

var built bool

// packageOf gives a package of the quick ones; their building compares two builds.
func packageOf(t *testing.T, name string) string {
	t.Helper()
	built = true
	dir, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func debFile(t *testing.T) string { return packageOf(t, "intermission_1.2.3~rc.1_amd64.deb") }
func rpmFile(t *testing.T) string { return packageOf(t, "intermission-1.2.3~rc.1-1.x86_64.rpm") }

// common is what both kinds of package have.
var common = []string{
	"-rw-r--r-- /etc/xdg/autostart/intermission-tray.desktop",
	"-rwxr-xr-x /usr/bin/intermission",
	"-rw-r--r-- /usr/lib/systemd/user/intermission.service",
	"-rw-r--r-- /usr/share/applications/intermission.desktop",
	"-rw-r--r-- /usr/share/bash-completion/completions/intermission",
	"-rw-r--r-- /usr/share/fish/vendor_completions.d/intermission.fish",
	"-rw-r--r-- /usr/share/icons/hicolor/128x128/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/16x16/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/22x22/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/24x24/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/256x256/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/32x32/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/48x48/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/64x64/apps/intermission.png",
	"-rw-r--r-- /usr/share/icons/hicolor/scalable/apps/intermission.svg",
	"-rw-r--r-- /usr/share/man/man1/intermission.1.gz",
}

// checkFiles holds a listing, of "MODE PATH" each, to what both have and to what one has more.
func checkFiles(t *testing.T, got []string, more ...string) {
	t.Helper()
	want := append(append([]string{}, common...), more...)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("it has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPackagesDeb(t *testing.T) {
	dpkg := tool(t, "dpkg-deb", "dpkg")
	deb := debFile(t)
	var files []string
	for line := range strings.Lines(output(t, exec.Command(dpkg, "--contents", deb))) {
		f := strings.Fields(line)
		if f[1] != "root/root" {
			t.Errorf("not root's: %s", line)
		}
		if !strings.HasPrefix(f[0], "d") {
			files = append(files, f[0]+" "+strings.TrimPrefix(f[5], "."))
		} else if f[0] != "drwxr-xr-x" {
			t.Errorf("a directory that isn't the system's: %s", line)
		}
	}
	checkFiles(t, files, "-rw-r--r-- /usr/share/doc/intermission/changelog.gz", "-rw-r--r-- /usr/share/doc/intermission/copyright",
		"-rw-r--r-- /usr/share/lintian/overrides/intermission", "-rw-r--r-- /usr/share/zsh/vendor-completions/_intermission")
	for field, want := range map[string]string{"Package": "intermission", "Version": "1.2.3~rc.1", "Architecture": "amd64", "Depends": ""} {
		if got := strings.TrimSpace(output(t, exec.Command(dpkg, "--field", deb, field))); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	control := t.TempDir()
	output(t, exec.Command(dpkg, "--control", deb, control))
	if got, err := os.ReadFile(filepath.Join(control, "conffiles")); err != nil || string(got) != "/etc/xdg/autostart/intermission-tray.desktop\n" {
		t.Errorf("conffiles: %q, %v", got, err)
	}
	root := filepath.Join(t.TempDir(), "root")
	output(t, exec.Command(dpkg, "--extract", deb, root))
	checkTree(t, root)
	text, err := os.ReadFile(filepath.Join(root, "usr/share/doc/intermission/copyright"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nFiles: *\nCopyright: 2026 The Intermission authors\nLicense: MIT\n", "\nFiles: modernc.org/sqlite/*\n", "\nFiles: go1."} {
		if !strings.Contains(string(text), want) {
			t.Errorf("copyright hasn't %q", want)
		}
	}
}

// checkTree looks at files that both kinds of package have, as they are installed.
func checkTree(t *testing.T, root string) {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := output(t, exec.Command(filepath.Join(root, "usr/bin/intermission"), "version")); got != "intermission "+packaged+"\n" {
		t.Errorf("the program is %q", got)
	}
	unit := read("usr/lib/systemd/user/intermission.service")
	for _, want := range []string{"\nExecStart=/usr/bin/intermission run --service\n", "\nKillMode=process\n", "\nWantedBy=default.target\n", packaged} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit hasn't %q:\n%s", want, unit)
		}
	}
	for entry, off := range map[string]bool{"usr/share/applications/intermission.desktop": false, "etc/xdg/autostart/intermission-tray.desktop": true} {
		output(t, exec.Command(tool(t, "desktop-file-validate", "desktop-file-utils"), filepath.Join(root, entry)))
		text := read(entry)
		if strings.Contains(text, "\nHidden=true\n") != off || !strings.Contains(text, "\nExec=/usr/bin/intermission tray\n") {
			t.Errorf("%s:\n%s", entry, text)
		}
	}
	page := filepath.Join(root, "usr/share/man/man1/intermission.1.gz")
	for _, cmd := range []*exec.Cmd{
		exec.Command(tool(t, "mandoc", "mandoc"), "-T", "lint", "-W", "warning", page),
		exec.Command(tool(t, "man", "man-db"), "--warnings", "--encoding=UTF-8", "--local-file", page),
	} {
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if strings.HasSuffix(cmd.Path, "mandoc") {
			complaints.Write(out)
		}
		if err != nil || complaints.Len() > 0 {
			t.Errorf("%s: %v\n%s", cmd, err, &complaints)
		}
	}
	for _, zipped := range []string{page, filepath.Join(root, "usr/share/doc/intermission/changelog.gz")} {
		f, err := os.Open(zipped)
		if os.IsNotExist(err) {
			continue // the rpm's isn't
		}
		z, err := gzip.NewReader(f)
		if err != nil || z.Name != "" || !z.ModTime.IsZero() {
			t.Errorf("%s: %v, %q of %v", zipped, err, z.Name, z.ModTime)
		}
		_ = f.Close()
	}
}

func TestPackagesLintian(t *testing.T) {
	cmd := exec.Command(tool(t, "lintian", "lintian"), "--fail-on", "error,warning", "--no-cfg", debFile(t))
	if out, err := cmd.CombinedOutput(); err != nil || regexp.MustCompile(`(?m)^[EW]: `).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPackagesRPM(t *testing.T) {
	rpm := tool(t, "rpm", "rpm")
	file := rpmFile(t)
	query := func(args ...string) string {
		cmd := exec.Command(rpm, append([]string{"--query", "--package", file}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "LC_ALL=C.UTF-8")
		return output(t, cmd)
	}
	var files []string
	for line := range strings.Lines(query("--queryformat", "[%{FILEMODES:perms} %{FILENAMES} %{FILEUSERNAME}:%{FILEGROUPNAME}\n]")) {
		f := strings.Fields(line)
		if f[2] != "root:root" {
			t.Errorf("not root's: %s", line)
		}
		files = append(files, f[0]+" "+f[1])
	}
	checkFiles(t, files, "-rw-r--r-- /usr/share/doc/intermission/CHANGELOG.md", "-rw-r--r-- /usr/share/licenses/intermission/LICENSE",
		"-rw-r--r-- /usr/share/licenses/intermission/THIRD-PARTY-LICENSES", "-rw-r--r-- /usr/share/zsh/site-functions/_intermission")
	if got := query("--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{BUILDHOST}"); got != "intermission 1.2.3~rc.1 1 x86_64 localhost" {
		t.Errorf("it is %s", got)
	}
	if got := query("--configfiles"); got != "/etc/xdg/autostart/intermission-tray.desktop\n" {
		t.Errorf("configuration: %s", got)
	}
	if got := query("--scripts"); !strings.Contains(got, "preuninstall scriptlet") || !strings.Contains(got, "remove | 0)") {
		t.Errorf("scripts:\n%s", got)
	}
	if got := query("--requires"); regexp.MustCompile(`(?m)^[^r/]`).MatchString(got) {
		t.Errorf("it requires\n%s", got)
	}
}

// rpmlint unpacks by cpio, which follows the absolute paths that nfpm writes: into the
// system itself. It gets one that doesn't, and no rights.
func TestPackagesRPMLint(t *testing.T) {
	rpmlint, cpio := tool(t, "rpmlint", "rpmlint"), tool(t, "cpio", "cpio")
	tool(t, "rpm2cpio", "rpm2cpio")
	dir, err := os.MkdirTemp("", "intermission-rpmlint-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	script := "#!/bin/sh\nexec " + cpio + " --no-absolute-filenames \"$@\"\n"
	data, err := os.ReadFile(rpmFile(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, filepath.Base(rpmFile(t)))
	config, err := os.ReadFile(filepath.Join(checkout(t), "packaging/linux/rpmlint.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"bin/cpio": script, filepath.Base(file): string(data), "rpmlint.toml": string(config)} {
		if err := write(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nobody reads it
		t.Fatal(err)
	}
	args := []string{rpmlint, "--strict", "-c", filepath.Join(dir, "rpmlint.toml"), file}
	if os.Getuid() == 0 {
		args = append([]string{tool(t, "setpriv", "util-linux"), "--reuid=65534", "--regid=65534", "--clear-groups"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "TMPDIR=/tmp", "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "0 errors, 0 warnings") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPackagesTarball(t *testing.T) {
	f, err := os.Open(packageOf(t, "intermission-"+packaged+"-linux-amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "intermission-"+packaged+"-linux-amd64/")
		want := int64(0o644)
		if name == "intermission" {
			want = 0o755
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || h.Mode != want {
			t.Errorf("%s is %d:%d's, mode %o", name, h.Uid, h.Gid, h.Mode)
		}
		names = append(names, name)
	}
	want := []string{
		"CHANGELOG.md", "LICENSE.txt", "README.md", "THIRD-PARTY-LICENSES.txt", "completions/_intermission",
		"completions/intermission.bash", "completions/intermission.fish", "intermission", "man/intermission.1",
	}
	if !slices.Equal(names, want) {
		t.Errorf("it has %q, want %q", names, want)
	}
}

func TestPackagesSums(t *testing.T) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = filepath.Dir(debFile(t))
	if got := output(t, cmd); strings.Count(got, ": OK") != 3 {
		t.Errorf("%s", got)
	}
}
