package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// stub is a release whose programs are a few bytes: all that is made around them is quick.
func stub(t *testing.T) *release {
	t.Helper()
	t.Setenv("DOWNLOADS", "")
	r, err := newRelease(context.Background(), checkout(t), t.TempDir(), packaged)
	if err != nil {
		t.Fatal(err)
	}
	r.time = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r.staged = true
	for _, target := range targets {
		path := filepath.Join(r.work, "bin", strings.Join(target[:], "-"), "intermission")
		if target[0] == "windows" {
			path += ".exe"
		}
		if err := write(path, []byte("MZ "+path[len(r.work):]), 0o755); err != nil {
			t.Fatal(err)
		}
		name := strings.Join(target[:], "-")
		r.binaries[name] = path
		r.modules[name] = []module{
			{path: "example.org/m", version: "v1.0.0", sum: "h1:x", licences: []licence{{"LICENSE", "Copyright (c) 2020 A", []string{"MIT"}}}},
			{path: "std", version: "1.26.0", licences: []licence{{"LICENSE", "Copyright 2009 The Go Authors.", []string{"BSD-3-Clause"}}}},
		}
	}
	for _, name := range []string{"intermission.1", "completion.bash", "completion.zsh", "completion.fish"} {
		if err := write(r.stagedPath(name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func made(t *testing.T, r *release, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPackagesInstaller(t *testing.T) {
	tool(t, "makensis", "nsis")
	var first []byte
	for range 2 {
		r := stub(t)
		for _, arch := range []string{"amd64", "arm64"} {
			if err := r.installer(arch); err != nil { // warnings are errors
				t.Fatal(err)
			}
		}
		got := []byte(made(t, r, "intermission-"+packaged+"-windows-amd64-setup.exe"))
		if first != nil && !bytes.Equal(first, got) {
			t.Error("two builds differ")
		}
		first = got
	}
}

func TestPackagesManifests(t *testing.T) {
	r := stub(t)
	buildManifests(t, r)
	sums := made(t, r, "SHA256SUMS")
	t.Run("homebrew", func(t *testing.T) {
		formula := made(t, r, "homebrew/intermission.rb")
		checkDownloads(t, sums, besideFormula, formula, `url "(.*)"\s+sha256 "(.*)"`, 4)
		if !strings.Contains(formula, `version "`+packaged+`"`) {
			t.Error(formula)
		}
	})
	t.Run("winget", func(t *testing.T) {
		dir := "winget/manifests/i/Intermission/Intermission/" + packaged + "/Intermission.Intermission"
		checkWinget(t, made(t, r, dir+".yaml"), "version", "PackageIdentifier", "PackageVersion", "DefaultLocale")
		checkWinget(t, made(t, r, dir+".locale.en-US.yaml"), "defaultLocale", "PackageIdentifier", "PackageVersion", "PackageLocale", "Publisher", "PackageName", "License", "ShortDescription")
		installer := made(t, r, dir+".installer.yaml")
		checkWinget(t, installer, "installer", "PackageIdentifier", "PackageVersion", "InstallerType", "Scope", "Installers")
		checkDownloads(t, sums, nowhere, installer, `InstallerUrl: (.*)\s+InstallerSha256: (.*)`, 2)
	})
	t.Run("aur", func(t *testing.T) { checkPKGBUILD(t, r, sums) })
	t.Run("sbom", func(t *testing.T) {
		bom := made(t, r, "intermission-"+packaged+".cdx.json")
		for _, want := range []string{`"bomFormat": "CycloneDX"`, `"purl": "pkg:golang/example.org/m@v1.0.0"`, `"timestamp": "2026-11-30T12:00:00Z"`, `"value": "windows/arm64"`} {
			if !strings.Contains(bom, want) {
				t.Errorf("it hasn't %s:\n%s", want, bom)
			}
		}
		if strings.Contains(bom, "serialNumber") || strings.Contains(bom, "null") {
			t.Error(bom)
		}
	})
}

// TestPackagesDownloads: what is to be downloaded from a place is named there, and nothing is said of what lies beside.
func TestPackagesDownloads(t *testing.T) {
	r := stub(t)
	r.downloads = "https://downloads.example/v1"
	buildManifests(t, r)
	sums := made(t, r, "SHA256SUMS")
	for name, pair := range map[string]string{
		"homebrew/intermission.rb": `url "(.*)"\s+sha256 "(.*)"`,
		"aur/.SRCINFO":             `source_\w+ = (.*)\s+sha256sums_\w+ = (.*)`,
		"winget/manifests/i/Intermission/Intermission/" + packaged + "/Intermission.Intermission.installer.yaml": `InstallerUrl: (.*)\s+InstallerSha256: (.*)`,
	} {
		manifest := made(t, r, name)
		checkDownloads(t, sums, r.downloads+"/", manifest, pair, strings.Count(manifest, r.downloads))
		if !strings.Contains(manifest, r.downloads) || strings.Contains(manifest, "DOWNLOADS") {
			t.Errorf("%s:\n%s", name, manifest)
		}
	}
	if recipe := made(t, r, "aur/PKGBUILD"); strings.Contains(recipe, "DOWNLOADS") {
		t.Error(recipe)
	}
}

// buildManifests builds archives, what stands for the packages, and the manifests.
func buildManifests(t *testing.T, r *release) {
	t.Helper()
	for _, target := range targets {
		if err := r.archive(target[0], target[1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"intermission_1.2.3~rc.1_amd64.deb", "intermission_1.2.3~rc.1_arm64.deb", "intermission-" + packaged + "-windows-amd64-setup.exe", "intermission-" + packaged + "-windows-arm64-setup.exe"} {
		if err := r.publish(name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, build := range []func() error{r.homebrew, r.winget, r.aur, r.sbom, r.sums} {
		if err := build(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkDownloads holds each address and checksum of a manifest to SHA256SUMS.
func checkDownloads(t *testing.T, sums, from, manifest, pair string, want int) {
	t.Helper()
	found := regexp.MustCompile(pair).FindAllStringSubmatch(manifest, -1)
	if len(found) != want {
		t.Errorf("%d downloads, want %d:\n%s", len(found), want, manifest)
	}
	for _, f := range found {
		name, there := strings.CutPrefix(f[1], from)
		if !there || !strings.Contains(sums, strings.ToLower(f[2])+"  "+name+"\n") {
			t.Errorf("%s with %s isn't in SHA256SUMS:\n%s", f[1], f[2], sums)
		}
	}
}

// What the schemas of winget-manifest 1.6.0 say of the keys that we have.
var wingetKeys = map[string]*regexp.Regexp{
	"PackageIdentifier": regexp.MustCompile(`^[^.\s\\/:*?"<>|]{1,32}(\.[^.\s\\/:*?"<>|]{1,32}){1,7}$`),
	"PackageVersion":    regexp.MustCompile(`^"[^\\/:*?"<>|]{1,128}"$`),
	"DefaultLocale":     regexp.MustCompile(`^[a-z]{2}-[A-Z]{2}$`),
	"PackageLocale":     regexp.MustCompile(`^[a-z]{2}-[A-Z]{2}$`),
	"ManifestVersion":   regexp.MustCompile(`^1\.6\.0$`),
	"ManifestType":      regexp.MustCompile(`^(version|installer|defaultLocale)$`),
	"MinimumOSVersion":  regexp.MustCompile(`^[0-9]{1,5}(\.[0-9]{1,5}){0,3}$`),
	"InstallerType":     regexp.MustCompile(`^(nullsoft|zip|exe|msi)$`),
	"Scope":             regexp.MustCompile(`^(user|machine)$`),
	"UpgradeBehavior":   regexp.MustCompile(`^(install|uninstallPrevious|deny)$`),
	"ReleaseDate":       regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`),
	"PackageUrl":        regexp.MustCompile(`^https?://\S+$`),
	"ShortDescription":  regexp.MustCompile(`^.{3,256}$`),
	"Publisher":         regexp.MustCompile(`^.{2,256}$`),
	"PackageName":       regexp.MustCompile(`^.{2,256}$`),
	"License":           regexp.MustCompile(`^.{3,512}$`),
	"Copyright":         regexp.MustCompile(`^.{3,512}$`),

	"ElevationRequirement": regexp.MustCompile(`^(elevationRequired|elevationProhibited|elevatesSelf)$`),
	"Description":          regexp.MustCompile(`^\|-$`), "InstallationNotes": regexp.MustCompile(`^\|-$`),
	"InstallModes": regexp.MustCompile(`^$`), "InstallerSwitches": regexp.MustCompile(`^$`), "ExpectedReturnCodes": regexp.MustCompile(`^$`),
	"Commands": regexp.MustCompile(`^$`), "AppsAndFeaturesEntries": regexp.MustCompile(`^$`), "Installers": regexp.MustCompile(`^$`), "Tags": regexp.MustCompile(`^$`),
}

func checkWinget(t *testing.T, manifest, kind string, required ...string) {
	t.Helper()
	keys := map[string]string{}
	for line := range strings.Lines(manifest) {
		line = strings.TrimRight(line, "\n")
		key, value, found := strings.Cut(line, ":")
		if line == "" || strings.ContainsAny(line[:1], " -#") {
			continue
		}
		value = strings.TrimSpace(value)
		if form := wingetKeys[key]; !found || form == nil || !form.MatchString(value) || strings.ContainsAny(value, "#{}[]&*!%@`") || strings.Contains(value, ": ") {
			t.Errorf("%s: %s", kind, line)
		}
		if _, twice := keys[key]; twice {
			t.Errorf("%s: %s twice", kind, key)
		}
		keys[key] = value
	}
	for _, key := range append(required, "ManifestType", "ManifestVersion") {
		if _, there := keys[key]; !there {
			t.Errorf("%s has no %s", kind, key)
		}
	}
	if keys["ManifestType"] != kind {
		t.Errorf("%s is a %s", kind, keys["ManifestType"])
	}
}

// checkPKGBUILD has bash read the recipe, and holds .SRCINFO to what it read.
func checkPKGBUILD(t *testing.T, r *release, sums string) {
	bash := tool(t, "bash", "bash")
	dir := filepath.Join(r.out, "aur")
	for _, name := range []string{"PKGBUILD", "intermission-bin.install"} {
		output(t, exec.Command(bash, "-n", filepath.Join(dir, name)))
	}
	// As makepkg --printsrcinfo prints it.
	info := output(t, exec.Command(bash, "-c", `set -eu; source "$1"
		echo "pkgbase = $pkgname"
		printf '\t%s = %s\n' pkgdesc "$pkgdesc" pkgver "$pkgver" pkgrel "$pkgrel" url "$url" install "$install"
		for key in arch license optdepends provides conflicts options backup source_x86_64 sha256sums_x86_64 source_aarch64 sha256sums_aarch64; do
		  declare -n list=$key
		  for value in "${list[@]}"; do printf '\t%s = %s\n' "$key" "$value"; done
		done
		printf '\npkgname = %s\n' "$pkgname"`, "read", filepath.Join(dir, "PKGBUILD")))
	if got := made(t, r, "aur/.SRCINFO"); got != info {
		t.Errorf(".SRCINFO is\n%s\nwant\n%s", got, info)
	}
	checkDownloads(t, sums, besideRecipe, info, `source_\w+ = (.*)\s+sha256sums_\w+ = (.*)`, 2)
	if !regexp.MustCompile(`(?m)^\tpkgver = [0-9A-Za-z.+_]+$`).MatchString(info) {
		t.Error(info)
	}
	// Its scripts are functions, of which the removal is the other packages'.
	out := output(t, exec.Command(bash, "-c", `source "$1"; post_install; declare -f pre_remove`, "read", filepath.Join(dir, "intermission-bin.install")))
	if !strings.HasPrefix(out, "Each user installs") {
		t.Error(out)
	}
}
