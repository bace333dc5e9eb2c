package main

import (
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

// debianChangelog words the changes as deb-changelog(5) wants them.
func (r *release) debianChangelog() (string, error) {
	points, err := r.changes()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "intermission (%s) unstable; urgency=medium\n\n", r.version.linux())
	for _, p := range points {
		b.WriteString("  * " + strings.Join(wrap(p, 74), "\n    ") + "\n")
	}
	fmt.Fprintf(&b, "\n -- %s  %s\n", maintainer, r.time.Format(time.RFC1123Z))
	return b.String(), nil
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
