package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestVersionForms(t *testing.T) {
	for _, tt := range []struct{ asked, want, linux, pacman, windows string }{
		{"1.2.3", "1.2.3", "1.2.3", "1.2.3", "1.2.3.0"},
		{"v1.2.3-rc.1", "1.2.3-rc.1", "1.2.3~rc.1", "1.2.3rc.1", "1.2.3.0"},
		{"1.2.3~rc.1", "1.2.3-rc.1", "1.2.3~rc.1", "1.2.3rc.1", "1.2.3.0"},
		{"1.2.3+git20261130.ab", "1.2.3+git20261130.ab", "1.2.3+git20261130.ab", "1.2.3+git20261130.ab", "1.2.3.0"},
	} {
		v, err := parseVersion(tt.asked)
		if err != nil || string(v) != tt.want || v.linux() != tt.linux || v.pacman() != tt.pacman || v.windows() != tt.windows {
			t.Errorf("%s: %s, %s, %s, %s, %v", tt.asked, v, v.linux(), v.pacman(), v.windows(), err)
		}
	}
	for _, wrong := range []string{"", "1.2", "latest", "1.2.3 ", "1.2.3/..", "1.2.3-a-b", "1.2.3\n", "-1.2.3"} {
		if v, err := parseVersion(wrong); err == nil {
			t.Errorf("%q is %s", wrong, v)
		}
	}
}

func TestVersionsSort(t *testing.T) {
	dpkg := tool(t, "dpkg", "dpkg")
	sorted := []string{"0.0.0-git20261130230516.4f6afca", "0.0.0-git20261201000000.0f6afca", "0.1.0-rc.1", "0.1.0-rc.2", "0.1.0", "0.1.0+git20261202000000.aa", "0.1.1"}
	for i := range len(sorted) - 1 {
		a, b := version(sorted[i]).linux(), version(sorted[i+1]).linux()
		if err := exec.Command(dpkg, "--compare-versions", a, "lt", b).Run(); err != nil {
			t.Errorf("%s isn't before %s: %v", a, b, err)
		}
	}
}

func TestFindSource(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "")
	root := t.TempDir()
	changelog := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(asked, want, when string) {
		t.Helper()
		s, err := findSource(context.Background(), root, asked)
		if err != nil || !strings.HasPrefix(string(s.version), want) || s.time.Format(time.DateTime) != when {
			t.Errorf("%s of %v, %v; want %s of %s", s.version, s.time, err, want, when)
		}
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command(tool(t, "git", "git"), append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_COMMITTER_DATE=2026-11-30T12:00:00Z")
		output(t, cmd)
	}
	changelog("## [Unreleased]\n")
	check("", "0.0.0-dev", "2026-01-01 00:00:00")
	changelog("## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n## [0.1.0] - 2026-11-01\n")
	check("", "0.2.0", "2026-12-01 00:00:00")
	check("v3.0.0", "3.0.0", "2026-12-01 00:00:00")

	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	check("", "0.0.0-git20261130120000.", "2026-11-30 12:00:00")
	git("tag", "v0.3.0")
	check("", "0.3.0", "2026-11-30 12:00:00")
	if s, _ := findSource(context.Background(), root, ""); s.version != "0.3.0" {
		t.Errorf("a tag is %s", s.version)
	}
	git("commit", "-q", "--allow-empty", "-m", "second")
	check("", "0.3.0+git20261130120000.", "2026-11-30 12:00:00")
	changelog("changed")
	if s, _ := findSource(context.Background(), root, ""); !strings.HasSuffix(string(s.version), ".dirty") {
		t.Errorf("what isn't committed is %s", s.version)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	check("1.0.0", "1.0.0", "2001-09-09 01:46:40")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := findSource(context.Background(), root, ""); err == nil {
		t.Error("that is no time")
	}
}

func TestRecognise(t *testing.T) {
	for text, want := range map[string][]string{
		"Permission is hereby granted, free of charge, to any person":                                       {"MIT"},
		"Redistribution and use in source and binary forms":                                                 {"BSD-2-Clause"},
		"Redistribution and use in source and binary forms\nNeither the name of":                            {"BSD-3-Clause"},
		"Apache License\n   Version 2.0, January 2004":                                                      {"Apache-2.0"},
		"This software is provided 'as-is', without any express or implied\nwarranty.":                      {"Zlib"},
		"has been dedicated to the public\ndomain":                                                          {"blessing"},
		"GNU GENERAL PUBLIC LICENSE":                                                                        nil,
		"All rights reserved. You may look at this.":                                                        nil,
		"Permission to use, copy, modify, and/or distribute this software for any purpose":                  {"ISC"},
		"Mozilla Public License, version 2.0":                                                               {"MPL-2.0"},
		"Permission is hereby granted, free of charge, to any person … Apache License Version 2.0, January": {"Apache-2.0", "MIT"},
	} {
		if got := recognise(text); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestSection(t *testing.T) {
	text := "# Changelog\n\n## [Unreleased]\n\n### Added\n- One\n  and more.\n- Two\n\n## [0.1.0] - 2026-01-01\n- Old\n"
	for heading, want := range map[string][]string{"Unreleased": {"One and more.", "Two"}, "0.1.0": {"Old"}, "0.2.0": nil} {
		if got := section(text, heading); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", heading, got, want)
		}
	}
}
