package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// targets are the systems that a release has programs for.
var targets = [][2]string{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/: what we need of it. It has no
// serial number, which would have to be random.
type (
	bom struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string          `json:"type"`
		Ref        string          `json:"bom-ref"`
		Name       string          `json:"name"`
		Version    string          `json:"version"`
		Licenses   []licenceChoice `json:"licenses"`
		Package    string          `json:"purl"`
		Properties []property      `json:"properties,omitempty"`
	}
	licenceChoice struct {
		License licenceID `json:"license"`
	}
	licenceID struct {
		ID string `json:"id"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ReplaceAll(path, "~", "%7E") + "@" + url.PathEscape(version)
}

// sbom writes the bill of materials: every module that is linked into a program of
// the release, read from the programs themselves, and into which.
func (r *release) sbom() error {
	own := component{
		Type: "application", Ref: packageURL("intermission", string(r.version)), Name: "intermission", Version: string(r.version),
		Licenses: []licenceChoice{{licenceID{"MIT"}}}, Package: packageURL("intermission", string(r.version)),
	}
	modules := map[string]*component{}
	for _, target := range targets {
		linked, err := r.linked(target[0], target[1])
		if err != nil {
			return err
		}
		for _, m := range linked {
			c := modules[m.path]
			if c == nil {
				c = &component{Type: "library", Ref: packageURL(m.path, m.version), Name: m.path, Version: m.version, Package: packageURL(m.path, m.version)}
				for _, term := range m.terms() {
					c.Licenses = append(c.Licenses, licenceChoice{licenceID{term}})
				}
				if m.sum != "" {
					c.Properties = append(c.Properties, property{"go.sum", m.sum})
				}
				modules[m.path] = c
			}
			c.Properties = append(c.Properties, property{"linked into", target[0] + "/" + target[1]})
		}
	}
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{r.time.Format(time.RFC3339), own}}
	for _, c := range modules {
		b.Components = append(b.Components, *c)
	}
	slices.SortFunc(b.Components, func(x, y component) int { return strings.Compare(x.Name, y.Name) })
	graph, err := r.requirements(modules)
	if err != nil {
		return err
	}
	for _, c := range append([]component{own}, b.Components...) {
		slices.Sort(graph[c.Name])
		b.Dependencies = append(b.Dependencies, dependency{c.Ref, append([]string{}, slices.Compact(graph[c.Name])...)})
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return r.publish(fmt.Sprintf("intermission-%s.cdx.json", r.version), append(text, '\n'))
}

// requirements is which of the modules requires which, by their references. All
// stand on the standard library.
func (r *release) requirements(modules map[string]*component) (map[string][]string, error) {
	out, err := r.output([]string{"GOFLAGS="}, r.root, "go", "mod", "graph")
	if err != nil {
		return nil, err
	}
	graph := map[string][]string{"intermission": {modules["std"].Ref}}
	for path := range modules {
		if path != "std" {
			graph[path] = []string{modules["std"].Ref}
		}
	}
	for line := range strings.Lines(string(out)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		from, version, _ := strings.Cut(from, "@")
		to, _, _ = strings.Cut(to, "@")
		// An older version of a module, which isn't linked, may have required others.
		used := from == "intermission" || modules[from] != nil && modules[from].Version == version
		if used && modules[to] != nil {
			graph[from] = append(graph[from], modules[to].Ref)
		}
	}
	return graph, nil
}
