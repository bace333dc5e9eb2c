# What a newcomer needs is `make demo` and `make test`. Everything fetched or
# made on the way goes into .cache, which git ignores; nothing is installed
# outside it, but for missing Debian packages when `make test` runs as root.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
CACHE       := $(CURDIR)/.cache

# The real server that the end-to-end suite runs against: npm's package for this platform.
OPENCODE_VERSION := 1.18.33
OPENCODE_OS      := $(shell go env GOOS)
OPENCODE_ARCH    := $(subst amd64,x64,$(shell go env GOARCH))
OPENCODE_PACKAGE := opencode-$(OPENCODE_OS)-$(OPENCODE_ARCH)
OPENCODE_BIN     := $(CACHE)/opencode-$(OPENCODE_VERSION)/node_modules/$(OPENCODE_PACKAGE)/bin/opencode

# Linters, built from the Go module proxy: 25 s and 110 s on two cores, once.
STATICCHECK_VERSION := v0.8.2
GOLANGCI_VERSION    := v2.15.0
STATICCHECK         := $(CACHE)/tools/staticcheck-$(STATICCHECK_VERSION)/staticcheck
GOLANGCI            := $(CACHE)/tools/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint

# PROGRAM:PACKAGE of what the tests of the tray use.
DESKTOP := dbus-daemon:dbus rsvg-convert:librsvg2-bin desktop-file-validate:desktop-file-utils
# The same, of what builds the packages, and of what their tests look at them with.
PACKAGES := makensis:nsis lintian:lintian rpm:rpm rpmlint:rpmlint rpm2cpio:rpm2cpio cpio:cpio mandoc:mandoc man:man-db zsh:zsh fish:fish
# The Windows program is tried under Wine.
WINDOWS := wine:wine Xvfb:xvfb

.PHONY: build demo test bench fuzz lint cross opencode packages packages-check prerequisites clean

build: ## the program, static, at ./intermission
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o intermission .

demo: build ## the whole story on the embedded server; asks for a key on a terminal only
	@if [ -t 0 ] && [ -t 1 ]; then ./intermission demo; else ./intermission demo --yes; fi

test: prerequisites opencode lint cross ## every check, as CI runs them
	OPENCODE_BIN=$(OPENCODE_BIN) go test -race -p 1 -timeout 20m ./...

bench: opencode ## the figures of the README; takes some minutes
	OPENCODE_BIN=$(OPENCODE_BIN) go test -run '^$$' -bench . -benchtime 1x -timeout 20m ./...

FUZZTIME ?= 60s

fuzz: ## each fuzz target for FUZZTIME, one after the other; what it finds is kept in testdata/fuzz
	@grep -rnoE --include='*_test.go' --exclude-dir=.cache '^func Fuzz\w+' . | sed -E 's|^(.+)/[^/]+:[0-9]+:func (\w+)$$|\1 \2|' | sort | \
	while read -r package target; do \
	  echo "$$package $$target"; \
	  go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x -parallel 2 "$$package" </dev/null; \
	done

lint: $(STATICCHECK) $(GOLANGCI)
	@unformatted=$$(gofmt -l $$(go list -f '{{.Dir}}' ./...)); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:" $$unformatted; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...
	$(GOLANGCI) run ./...

cross: ## everything compiles for the other systems, tests too
	for os in windows darwin; do \
	  CGO_ENABLED=0 GOOS=$$os go vet ./...; \
	  CGO_ENABLED=0 GOOS=$$os go build -o /dev/null .; \
	done

opencode: $(OPENCODE_BIN)
	@ln -sfn $(OPENCODE_BIN) $(CACHE)/opencode

$(OPENCODE_BIN):
	npm install --prefix $(CACHE)/opencode-$(OPENCODE_VERSION) --no-save --no-audit --no-fund $(OPENCODE_PACKAGE)@$(OPENCODE_VERSION)
	test -x $@

$(STATICCHECK):
	GOBIN=$(@D) CGO_ENABLED=0 go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

$(GOLANGCI):
	GOBIN=$(@D) CGO_ENABLED=0 go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

packages: ## packages, archives, installers, manifests, checksums, into .cache/packages; VERSION=1.2.3 names the release
	@command -v makensis >/dev/null || { echo "make packages needs makensis. Install it (Debian: sudo apt-get install nsis) and try again." >&2; exit 1; }
	rm -rf $(CACHE)/packages
	packaging/build.sh all '$(if $(filter command environment,$(word 1,$(origin VERSION))),$(VERSION))' $(CACHE)/packages

packages-check: ## builds all packages at two places, and compares every byte
	packaging/check.sh all '$(if $(filter command environment,$(word 1,$(origin VERSION))),$(VERSION))'

# The race detector needs a C compiler, the real server comes by npm, and works in
# git projects. The tray is tested on a session bus, its icons and its entry at
# login by the tools that define them, and on a real desktop, which lists its own needs;
# so does the machine with a real systemd, that only root can start.
prerequisites:
	@missing=(); \
	[ "$$(uname)" != Linux ] || for need in $(DESKTOP) $(PACKAGES) $(WINDOWS); do \
	  command -v "$${need%%:*}" >/dev/null || missing+=("$${need##*:}"); \
	done; \
	[ "$$(uname)" != Linux ] || missing+=($$(assets/screenshots/make.sh --missing) $$(packaging/lab/missing.sh)); \
	command -v gcc >/dev/null || missing+=(gcc libc6-dev); \
	command -v npm >/dev/null || missing+=(npm); \
	command -v git >/dev/null || missing+=(git); \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "$${missing[@]}" </dev/null; \
	else \
	  echo "make test needs: $${missing[*]}. Install them (Debian: sudo apt-get install $${missing[*]}) and try again." >&2; exit 1; \
	fi

clean:
	rm -rf $(CACHE) intermission
