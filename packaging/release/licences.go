package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is what is linked into a program beside our own code.
type module struct {
	path, version string
	sum           string // of go.sum; "" for the standard library
	licences      []licence
}

// licence is one file in which a module tells its terms.
type licence struct {
	file string
	text string
	spdx []string // what it was recognised as
}

// linked are the modules of the program for a system, and Go's own library, which
// is linked too; sorted by path.
func (r *release) linked(system, arch string) ([]module, error) {
	target := system + "-" + arch
	if modules, known := r.modules[target]; known {
		return modules, nil
	}
	path, err := r.binary(system, arch)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	args := []string{"list", "-m", "-json"}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced: its licence must be looked at by a person", m.Path)
		}
		args = append(args, m.Path+"@"+m.Version)
	}
	out, err := r.output([]string{"GOFLAGS="}, r.root, "go", args...)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var m struct{ Path, Dir string }
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
		dirs[m.Path] = m.Dir
	}
	root, err := r.output(nil, r.root, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	modules := []module{{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")}}
	dirs["std"] = strings.TrimSpace(string(root))
	for _, m := range info.Deps {
		modules = append(modules, module{path: m.Path, version: m.Version, sum: m.Sum})
	}
	for i := range modules {
		if modules[i].licences, err = readLicences(dirs[modules[i].path]); err != nil {
			return nil, fmt.Errorf("cannot tell the licence of %s: %w", modules[i].path, err)
		}
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
	r.modules[target] = modules
	return modules, nil
}

// licenceFile is what a licence is called; that of a project's picture isn't linked.
var licenceFile = regexp.MustCompile(`^(?i)(LICEN[CS]E|COPYING|NOTICE|UNLICENSE|PATENTS)([-.].*)?$`)

func readLicences(dir string) (found []licence, err error) {
	if dir == "" {
		return nil, errors.New("its source isn't here; fetch it with: go mod download")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	recognised := false
	for _, e := range entries {
		if !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), "-LOGO") || strings.HasSuffix(e.Name(), ".go") || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		l := licence{file: e.Name(), text: strings.TrimRight(strings.ReplaceAll(string(text), "\r", ""), "\n ") + "\n"}
		// An account of others' code names what isn't linked, too.
		if !strings.Contains(l.file, "3RD-PARTY") {
			l.spdx = recognise(l.text)
		}
		recognised = recognised || len(l.spdx) > 0
		found = append(found, l)
	}
	if !recognised {
		return nil, errors.New("no licence that we know stands in " + dir + "; look at it, and add what it says to recognise")
	}
	return found, nil
}

// marks are words that a licence has and the others have not. Those whose terms would
// be ours too, such as the GPL's, are not among them: their modules stop the build.
var marks = []struct {
	spdx string
	has  *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`Apache License\s+Version 2\.0`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms`)},
	{"BSD-3-Clause", regexp.MustCompile(`(?i)neither\s+the\s+names?\s+of`)},
	{"ISC", regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute this`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge, to any person`)},
	{"Zlib", regexp.MustCompile(`as-is', without\s+any\s+express\s+or\s+implied\s+warranty`)},
	{"MPL-2.0", regexp.MustCompile(`(?i)Mozilla Public License,? (Version|v\.) 2\.0`)},
	{"blessing", regexp.MustCompile(`(?i)dedicated to the public\s+domain`)}, // SQLite's
}

// recognise finds the licences that stand in a text, by their names in the SPDX list.
func recognise(text string) (spdx []string) {
	for _, m := range marks {
		if m.has.MatchString(text) {
			spdx = append(spdx, m.spdx)
		}
	}
	if slices.Contains(spdx, "BSD-3-Clause") { // which begins like the other
		spdx = slices.DeleteFunc(spdx, func(s string) bool { return s == "BSD-2-Clause" })
	}
	return spdx
}

// further are terms that a module tells only in an account of others' code, by hand.
var further = map[string]string{"modernc.org/libc": "MIT"} // musl, and others under it

// terms are the licences of a module; all of them hold.
func (m module) terms() []string {
	all := map[string]bool{}
	for _, l := range m.licences {
		for _, s := range l.spdx {
			all[s] = true
		}
	}
	if s := further[m.path]; s != "" {
		all[s] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// expression is the licence of a whole program, as SPDX words it.
func expression(modules []module) string {
	all := map[string]bool{"MIT": true} // ours
	for _, m := range modules {
		for _, s := range m.terms() {
			all[s] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), " AND ")
}

// notices is the file that goes with a program where there is no other place for
// the licences of what is linked into it.
func notices(modules []module) string {
	var b strings.Builder
	b.WriteString("Into this program are linked, beside its own code, the modules below. Their terms follow each.\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n%[1]s\n", strings.Repeat("=", 78), m.name(), m.version, strings.Join(m.terms(), ", "))
		for _, l := range m.licences {
			fmt.Fprintf(&b, "\n--- %s ---\n\n%s", l.file, l.text)
		}
	}
	return b.String()
}

func (m module) name() string {
	if m.path == "std" {
		return "Go, runtime and standard library"
	}
	return m.path
}

var (
	copyrightLine = regexp.MustCompile(`(?m)^\W*(?i:copyright)\s+(?:\((?i:c)\)|©)?\s*((?:[0-9]{4}|The |by |[A-Z]).*?)(?:\s+All [Rr]ights [Rr]eserved\.?)?\s*$`)
	apacheText    = regexp.MustCompile(`(?s)[ \t]*Apache License\s+Version 2\.0.*?END OF TERMS AND CONDITIONS(\n\s*APPENDIX: How to apply.*?limitations under the License\.)?\n?`)
)

// holders are the copyright lines of a module.
func (m module) holders() (holders []string) {
	for _, l := range m.licences {
		if len(l.spdx) == 0 {
			continue
		}
		for _, found := range copyrightLine.FindAllStringSubmatch(l.text, -1) {
			if h := strings.TrimSpace(found[1]); !slices.Contains(holders, h) && !strings.Contains(h, "[yyyy]") {
				holders = append(holders, h)
			}
		}
	}
	if len(holders) == 0 {
		holders = []string{"The authors of " + m.path}
	}
	return holders
}

// debianCopyright is the package's copyright file, in Debian's machine-readable
// form 1.0. What is linked isn't in our source, but it is in the package.
func debianCopyright(own string, modules []module) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"+
		"Upstream-Name: intermission\nUpstream-Contact: %s\nSource: %s\n"+
		"Comment:\n The program is static: the modules named below with a path of their own are linked\n into it, and their terms hold for it too.\n", maintainer, homepage)
	paragraph := func(files string, holders []string, spdx, text string) {
		fmt.Fprintf(&b, "\nFiles: %s\nCopyright: %s\nLicense: %s\n", files, strings.Join(holders, "\n "), spdx)
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\n\t\f "); line == "" {
				line = "."
			}
			b.WriteString(" " + strings.ReplaceAll(line, "\f", "") + "\n")
		}
	}
	_, text, _ := strings.Cut(own, "\n\n")                        // without its title
	holder, text, _ := strings.Cut(strings.TrimSpace(text), "\n") // its copyright line
	paragraph("*", []string{strings.TrimPrefix(holder, "Copyright (c) ")}, "MIT", strings.TrimSpace(text))
	for _, m := range modules {
		var texts []string
		for _, l := range m.licences {
			text := apacheText.ReplaceAllString(l.text, " On Debian systems the Apache License 2.0 is /usr/share/common-licenses/Apache-2.0.\n")
			texts = append(texts, text)
		}
		files := m.path + "/*"
		if m.path == "std" {
			files = "go" + m.version + "/src/*"
		}
		paragraph(strings.ReplaceAll(files, "~", "?"), m.holders(), strings.Join(m.terms(), " and "), strings.Join(texts, "\n"))
	}
	return b.String()
}
