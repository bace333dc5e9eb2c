// Package devserver is a small managed server that keeps the contract of OpenCode
// v2 as it is seen from outside (OPENCODE.md), for the demo and the tests. It
// exists so that the fault can be shown without us: started alone on a database
// with unfinished sessions, it resumes them all by itself, as the real one does.
//
// It is the hidden command `intermission devserver`, and takes the arguments of
// the real program: `serve [--service]`, `service start|stop|restart|status`,
// `--version`. Its model is a script that stands in the prompt; script.go lists
// the directives. What differs between the two kinds of v2 is chosen by the
// environment, and so is misbehaviour on purpose:
//
//	INTERMISSION_DEVSERVER_KIND      early or claims (default)
//	INTERMISSION_DEVSERVER_VERSION   version; default 2.0.0 (early), 2.2.0 (claims)
//	INTERMISSION_DEVSERVER_HEALTH    path of the readiness call: health (default), status, info
//	INTERMISSION_DEVSERVER_REQUESTS  file that gets one JSON line a request to the provider
//	INTERMISSION_DEVSERVER_FAULT     comma-separated faults (faults.go), or @FILE, read anew at each use
//	INTERMISSION_DEVSERVER_CONTINUE  script of every continued turn, instead of the rest of its own
//	INTERMISSION_DEVSERVER_BOOT_DELAY, _SWEEP_DELAY, _REGISTRATION_INTERVAL
//	                                 durations: registered → ready (0), ready → sweep (300ms), check of the registration (5s)
//
// The package shares no code with supervisor/opencode: it is held to recorded
// data of the real server instead, so that client and server can't agree on a
// mistake.
package devserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// kind is one of the two kinds of v2.
type kind string

const (
	early  kind = "early"  // 2.0 previews: suspension written at graceful stop
	claims kind = "claims" // 2.1 and 2.2: claim written at turn start
)

// basePort is where a kind begins to look for a free port.
var basePort = map[kind]int{early: 4096, claims: 49374}

// settings is what one server is told by its command line and environment.
type settings struct {
	kind     kind
	version  string
	service  bool
	hostname string // "" takes the service configuration's, else 127.0.0.1
	port     int    // 0 takes the service configuration's, else the first free one
	password string // plain serve only; "" makes one

	home         string
	database     string
	registration string
	config       string // service configuration
	health       string // readiness path below /api/
	requests     string
	proceed      string // script of a continued turn
	faults       faults

	bootDelay, sweepDelay, registrationInterval time.Duration
}

const usage = `opencode <command>

commands:
  serve      start a server
  service    start, stop, restart or show the background server

  -v, --version  show the version
`

const serveUsage = `opencode serve

start a server

options:
  --service   run as the managed background service
  --port      port to listen on
  --hostname  address to listen on
  -h, --help  show help
`

// Main runs the command line args, without the program's name, and returns the exit
// status: 0 done, 1 failed, 2 usage, 130 stopped by SIGTERM, SIGINT or the end of
// ctx. getenv is the environment; serve --service changes the working directory to HOME.
func Main(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	set, err := newSettings(getenv)
	if err != nil {
		return fail(stderr, err)
	}
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch args[0] {
	case "--version", "-v":
		fmt.Fprintln(stdout, set.version)
		return 0
	case "--help", "-h":
		fmt.Fprint(stdout, usage)
		return 0
	case "serve":
		return serve(ctx, set, args[1:], stdout, stderr)
	case "service":
		return service(ctx, set, args, stdout, stderr)
	}
	fmt.Fprintf(stderr, "unknown command %q\n%s", args[0], usage)
	return 2
}

func fail(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "Error:", err)
	return 1
}

// newSettings reads the environment. Paths honour XDG_* on every system, as the real server's do.
func newSettings(getenv func(string) string) (settings, error) {
	set := settings{kind: claims, home: getenv("HOME"), health: "health",
		requests: getenv("INTERMISSION_DEVSERVER_REQUESTS"),
		proceed:  getenv("INTERMISSION_DEVSERVER_CONTINUE"),
		faults:   faults(getenv("INTERMISSION_DEVSERVER_FAULT")),
		password: getenv("OPENCODE_PASSWORD")}
	if set.home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return set, fmt.Errorf("cannot find the home directory: %w", err)
		}
		set.home = home
	}
	switch k := kind(getenv("INTERMISSION_DEVSERVER_KIND")); k {
	case early, claims:
		set.kind = k
	case "":
	default:
		return set, fmt.Errorf("unknown INTERMISSION_DEVSERVER_KIND %q (early, claims)", k)
	}
	set.version = map[kind]string{early: "2.0.0", claims: "2.2.0"}[set.kind]
	if v := getenv("INTERMISSION_DEVSERVER_VERSION"); v != "" {
		set.version = v
	}
	if h := getenv("INTERMISSION_DEVSERVER_HEALTH"); h != "" {
		set.health = h
	}
	set.paths(getenv)
	for name, d := range map[string]*time.Duration{
		"BOOT_DELAY": &set.bootDelay, "SWEEP_DELAY": &set.sweepDelay, "REGISTRATION_INTERVAL": &set.registrationInterval,
	} {
		value := getenv("INTERMISSION_DEVSERVER_" + name)
		if value == "" {
			value = map[string]string{"BOOT_DELAY": "0s", "SWEEP_DELAY": "300ms", "REGISTRATION_INTERVAL": "5s"}[name]
		}
		parsed, err := time.ParseDuration(value)
		if err != nil {
			return set, fmt.Errorf("cannot read INTERMISSION_DEVSERVER_%s: %w", name, err)
		}
		*d = parsed
	}
	return set, nil
}

func (set *settings) paths(getenv func(string) string) {
	dir := func(variable string, fallback ...string) string {
		base := getenv(variable)
		if base == "" {
			base = filepath.Join(append([]string{set.home}, fallback...)...)
		}
		return filepath.Join(base, "opencode")
	}
	suffix := ""
	if c := channel(set.version); c != "latest" && c != "beta" && c != "prod" {
		suffix = "-" + c
	}
	set.registration = filepath.Join(dir("XDG_STATE_HOME", ".local", "state"), "service"+suffix+".json")
	set.config = filepath.Join(dir("XDG_CONFIG_HOME", ".config"), "service.json")
	set.database = getenv("OPENCODE_DB")
	if set.database == "" {
		set.database = filepath.Join(dir("XDG_DATA_HOME", ".local", "share"), "opencode"+suffix+".db")
	}
}

// channel is the release channel that stands in a version: 0.0.0-<channel>-<build>, else latest.
func channel(version string) string {
	rest, ok := strings.CutPrefix(version, "0.0.0-")
	if !ok {
		return "latest"
	}
	if i := strings.LastIndex(rest, "-"); i > 0 {
		rest = rest[:i]
	}
	return rest
}

// listen binds the first free port from port on when exact is false, else port alone.
func listen(hostname string, port int, exact bool) (net.Listener, error) {
	for try := 0; ; try++ {
		l, err := net.Listen("tcp", net.JoinHostPort(hostname, fmt.Sprint(port+try)))
		if err == nil {
			return l, nil
		}
		if exact || try == 500 {
			return nil, fmt.Errorf("ServeError: cannot listen on port %d: %w", port+try, err)
		}
	}
}

func listenURL(l net.Listener) string {
	return (&url.URL{Scheme: "http", Host: l.Addr().String()}).String()
}
