package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// sum is the SHA-256 of a file of this release.
func (r *release) sum(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(r.out, filepath.FromSlash(name)))
	if err != nil {
		return "", fmt.Errorf("its checksum is needed, and it must be built in the same run: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// download is a file as a manifest names it.
type download struct{ URL, SHA256 string }

// Where a manifest's files are taken from without $DOWNLOADS: beside the manifest,
// where that can be said.
const (
	besideRecipe  = "" // makepkg looks for a bare name there
	besideFormula = "file://#{File.dirname(__FILE__)}/"
	nowhere       = homepage + "/" // winget knows addresses only
)

// noDownloads is what to know of manifests that were built without $DOWNLOADS.
const noDownloads = "DOWNLOADS isn't set: the PKGBUILD takes the debs, and the formula the archives, that are laid beside it; " +
	"winget's manifests name a place that is nobody's. For a release: make packages DOWNLOADS=https://…, where its files will be"

// downloadsOf gives those of some names, each with the checksum of what was built.
func (r *release) downloadsOf(names map[string]string, otherwise string) (map[string]download, error) {
	from := otherwise
	if r.downloads != "" {
		from = r.downloads + "/"
	}
	found := map[string]download{}
	for key, name := range names {
		sum, err := r.sum(name)
		if err != nil {
			return nil, err
		}
		found[key] = download{from + name, sum}
	}
	return found, nil
}

// manifest fills in a template of packaging/ and publishes it.
func (r *release) manifest(from, to string, downloads map[string]download, more map[string]any) error {
	values := map[string]any{
		"Version": string(r.version), "Files": downloads, "Placed": r.downloads != "", "Homepage": homepage, "Publisher": publisher, "Maintainer": maintainer,
		"Summary": summary, "Title": strings.ToUpper(summary[:1]) + summary[1:], "Date": r.time.Format(time.DateOnly),
	}
	for k, v := range more {
		values[k] = v
	}
	text, err := r.fill(from, values)
	if err != nil {
		return err
	}
	return r.publish(to, text)
}

func (r *release) homebrew() error {
	names := map[string]string{}
	for _, target := range []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64"} {
		names[strings.ReplaceAll(target, "-", "_")] = fmt.Sprintf("intermission-%s-%s.tar.gz", r.version, target)
	}
	downloads, err := r.downloadsOf(names, besideFormula)
	if err != nil {
		return err
	}
	return r.manifest("packaging/homebrew/intermission.rb", "homebrew/intermission.rb", downloads, nil)
}

func (r *release) winget() error {
	downloads, err := r.downloadsOf(map[string]string{
		"x64":   fmt.Sprintf("intermission-%s-windows-amd64-setup.exe", r.version),
		"arm64": fmt.Sprintf("intermission-%s-windows-arm64-setup.exe", r.version),
	}, nowhere)
	if err != nil {
		return err
	}
	points, err := r.changes()
	if err != nil {
		return err
	}
	for name, d := range downloads { // upper case is what winget's own tools write
		downloads[name] = download{d.URL, strings.ToUpper(d.SHA256)}
	}
	dir := path.Join("winget/manifests/i/Intermission/Intermission", string(r.version))
	for _, kind := range []string{"version", "installer", "locale.en-US"} {
		to := path.Join(dir, "Intermission.Intermission."+kind+".yaml")
		if kind == "version" {
			to = path.Join(dir, "Intermission.Intermission.yaml")
		}
		if err := r.manifest("packaging/winget/"+kind+".yaml", to, downloads, map[string]any{"Changes": points}); err != nil {
			return err
		}
	}
	return nil
}

// aur makes the recipe of Arch's user repository, which unpacks our deb.
func (r *release) aur() error {
	downloads, err := r.downloadsOf(map[string]string{
		"x86_64":  fmt.Sprintf("intermission_%s_amd64.deb", r.version.linux()),
		"aarch64": fmt.Sprintf("intermission_%s_arm64.deb", r.version.linux()),
	}, besideRecipe)
	if err != nil {
		return err
	}
	remove, err := os.ReadFile(r.path("packaging/linux/remove.sh"))
	if err != nil {
		return err
	}
	linked, err := r.linked("linux", "amd64")
	if err != nil {
		return err
	}
	more := map[string]any{"Pacman": r.version.pacman(), "Remove": strings.TrimSpace(string(remove)), "Licenses": strings.Split(expression(linked), " AND ")}
	for _, name := range []string{"PKGBUILD", ".SRCINFO", "intermission-bin.install"} {
		if err := r.manifest("packaging/aur/"+strings.TrimPrefix(name, "."), "aur/"+name, downloads, more); err != nil {
			return err
		}
	}
	return nil
}

// sums writes SHA256SUMS over all that was built in this run.
func (r *release) sums() error {
	var b strings.Builder
	for _, name := range r.made {
		sum, err := r.sum(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, name)
	}
	return r.publish("SHA256SUMS", []byte(b.String()))
}
