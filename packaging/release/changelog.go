package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// changes are the points of CHANGELOG.md for this version, and where it has no
// section of its own those of what isn't released yet.
func (r *release) changes() ([]string, error) {
	text, err := os.ReadFile(r.path("CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	points := section(string(text), string(r.version))
	if points == nil {
		points = section(string(text), "Unreleased")
	}
	if points == nil {
		return nil, fmt.Errorf("CHANGELOG.md has nothing of %s; add a section for it", r.version)
	}
	return points, nil
}

// section gives the points of a section, each on one line.
func section(text, heading string) (points []string) {
	_, text, found := strings.Cut(text, "\n## ["+heading+"]")
	if !found {
		return nil
	}
	text, _, _ = strings.Cut(text, "\n## ")
	_, text, _ = strings.Cut(text, "\n") // the date
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch point, isPoint := strings.CutPrefix(line, "- "); {
		case isPoint:
			points = append(points, strings.TrimSpace(point))
		case strings.HasPrefix(line, "  ") && trimmed != "" && len(points) > 0:
			points[len(points)-1] += " " + trimmed
		}
	}
	return points
}

// changelog is what changed, in the words of deb-changelog(5) and in nfpm's for rpm.
type changelog struct {
	debian string
	nfpm   []byte
}

func (r *release) changelog() (c changelog, err error) {
	points, err := r.changes()
	if err != nil {
		return c, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "intermission (%s) unstable; urgency=medium\n\n", r.version.linux())
	for _, p := range points {
		b.WriteString("  * " + strings.Join(wrap(p, 74), "\n    ") + "\n")
	}
	fmt.Fprintf(&b, "\n -- %s  %s\n", maintainer, r.time.Format(time.RFC1123Z))
	c.debian = b.String()

	type change struct {
		Note string `json:"note"`
	}
	entry := struct {
		Semver   string    `json:"semver"`
		Date     time.Time `json:"date"`
		Packager string    `json:"packager"`
		Changes  []change  `json:"changes"`
	}{Semver: r.version.linux() + "-1", Date: r.time, Packager: maintainer}
	for _, p := range points {
		entry.Changes = append(entry.Changes, change{p})
	}
	c.nfpm, err = json.Marshal([]any{entry}) // which is YAML too
	return c, err
}

// wrap breaks words into lines of at most so many bytes, where there is a space.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
