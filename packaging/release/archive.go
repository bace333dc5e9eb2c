package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// entry is a file of an archive.
type entry struct {
	name string // below the archive's one directory
	data []byte
	mode int64
}

// archiveFiles are the files of an archive for a system, sorted.
func (r *release) archiveFiles(system, arch string) ([]entry, error) {
	if err := r.stage(); err != nil {
		return nil, err
	}
	program, err := r.binary(system, arch)
	if err != nil {
		return nil, err
	}
	modules, err := r.linked(system, arch)
	if err != nil {
		return nil, err
	}
	readme, name := "packaging/archive/README.md", "README.md"
	if system == "windows" {
		readme, name = "packaging/windows/README.txt", "README.txt"
	}
	text, err := r.fill(readme, map[string]any{"System": system, "Version": r.version, "Homepage": homepage})
	if err != nil {
		return nil, err
	}
	files := []entry{
		{name: name, data: text, mode: 0o644},
		{name: "THIRD-PARTY-LICENSES.txt", data: []byte(notices(modules)), mode: 0o644},
	}
	from := map[string]string{filepath.Base(program): program, "LICENSE.txt": r.path("LICENSE"), "CHANGELOG.md": r.path("CHANGELOG.md")}
	if system != "windows" {
		from["man/intermission.1"] = r.stagedPath("intermission.1")
		from["completions/intermission.bash"] = r.stagedPath("completion.bash")
		from["completions/_intermission"] = r.stagedPath("completion.zsh")
		from["completions/intermission.fish"] = r.stagedPath("completion.fish")
	}
	for name, path := range from {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if path == program {
			mode = 0o755
		}
		files = append(files, entry{name: name, data: data, mode: mode})
	}
	if system == "windows" {
		for i := range files { // for Notepad of old, and for those who print
			if filepath.Ext(files[i].name) == ".txt" {
				files[i].data = bytes.ReplaceAll(files[i].data, []byte("\n"), []byte("\r\n"))
			}
		}
	}
	slices.SortFunc(files, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return files, nil
}

// archive builds the tar.gz for a system, or Windows' zip.
func (r *release) archive(system, arch string) error {
	files, err := r.archiveFiles(system, arch)
	if err != nil {
		return err
	}
	top := fmt.Sprintf("intermission-%s-%s-%s", r.version, system, arch)
	name, pack := top+".tar.gz", r.tarball
	if system == "windows" {
		name, pack = top+".zip", r.zip
	}
	data, err := pack(top, files)
	if err != nil {
		return err
	}
	return r.publish(name, data)
}

func (r *release) tarball(top string, files []entry) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: top + "/" + f.name, Size: int64(len(f.data)), Mode: f.mode,
			ModTime: r.time, Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

func (r *release) zip(top string, files []entry) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: top + "/" + f.name, Method: zip.Deflate, Modified: r.time}
		h.SetMode(os.FileMode(f.mode)) //nolint:gosec // of our own making
		out, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := out.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// publish writes a file of the release.
func (r *release) publish(name string, data []byte) error {
	if err := write(filepath.Join(r.out, filepath.FromSlash(name)), data, 0o644); err != nil {
		return err
	}
	r.made = append(r.made, name)
	return nil
}
