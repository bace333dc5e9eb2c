package platform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// systemdService is the service as a unit of systemd.
type systemdService struct {
	Service
	host serviceHost
	kind ServiceKind
	systemctl
}

func newSystemd(s Service, h serviceHost, kind ServiceKind) systemdService {
	return systemdService{s, h, kind, h.systemctl(kind == SystemdUser)}
}

func (s systemdService) unit() string { return s.Name + ".service" }

// stateMasked is the state of a unit that an administrator, or the user, forbade.
const stateMasked = "masked"

// unitState is what the manager knows of the unit.
type unitState struct {
	load, active, sub, result string
	text                      string // the supervisor's status line
	fragment, file            string // the unit's file, and how it is enabled
	program, user             string
	pid                       int
	reload                    bool // the file is newer than what the manager has read
	exit                      string
}

func (s systemdService) ask(ctx context.Context) (unitState, error) {
	v, err := s.show(ctx, s.unit(), "LoadState", "ActiveState", "SubState", "Result", "StatusText", "FragmentPath",
		"UnitFileState", "ExecStart", "User", "MainPID", "NeedDaemonReload", "ExecMainCode", "ExecMainStatus")
	if err != nil {
		return unitState{}, err
	}
	u := unitState{
		load: v["LoadState"], active: v["ActiveState"], sub: v["SubState"], result: v["Result"], text: v["StatusText"],
		fragment: v["FragmentPath"], file: v["UnitFileState"], user: v["User"], reload: v["NeedDaemonReload"] == "yes",
	}
	u.pid, _ = strconv.Atoi(v["MainPID"])
	if _, after, ok := strings.Cut(v["ExecStart"], "path="); ok {
		u.program, _, _ = strings.Cut(after, " ; argv[]=")
	}
	switch v["ExecMainCode"] { // CLD_EXITED, CLD_KILLED, CLD_DUMPED
	case "1":
		u.exit = "its exit status was " + v["ExecMainStatus"]
	case "2", "3":
		u.exit = "signal " + v["ExecMainStatus"] + " ended it"
	}
	return u, nil
}

func (u unitState) running() bool {
	return u.pid != 0 && slices.Contains([]string{"active", "activating", "reloading", "deactivating"}, u.active)
}

// fails tells whether the unit has failed, or does so at each start.
func (u unitState) fails() bool {
	return u.active == "failed" || u.sub == "auto-restart" && u.result != "success"
}

// comes tells whether a unit that hasn't failed is about to be started again.
func (u unitState) comes() bool { return u.sub == "auto-restart" && !u.fails() }

// words are the manager's own, and the supervisor's: "active (running), 2 sessions pending".
func (u unitState) words() string {
	if u.load == stateMasked {
		return stateMasked
	}
	words := u.active
	if u.sub != "" {
		words += " (" + u.sub + ")"
	}
	if !u.running() && u.result != "" && u.result != "success" {
		if u.exit == "" || !slices.Contains([]string{"exit-code", "signal", "core-dump"}, u.result) { // else the exit says it
			words += ", " + u.result
		}
		if u.exit != "" {
			words += ", " + u.exit
		}
	}
	switch rest, runs := strings.CutPrefix(u.text, u.sub); {
	case u.text == "" || u.active == "inactive": // else it is its last one
	case runs && (rest == "" || rest[0] == ','): // it is not said twice
		words += rest
	default:
		words += ": " + u.text
	}
	return words
}

// unitFiles are the unit's definitions: our own file, which need not be there, and
// the one of the system that is in force without it; "" is none.
type unitFiles struct {
	own, packaged string
	have          []byte // content of own; nil when it isn't there
	want          []byte // nil when the packaged one does
}

// version is what an installation of ours wrote into a unit; ok is false for what isn't ours.
func unitVersion(unit []byte) (version string, ok bool) {
	for line := range strings.Lines(string(unit)) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), versionKey); found {
			return v, true
		}
	}
	return "", false
}

// sameUnit compares definitions but for comments and the version.
func sameUnit(a, b []byte) bool {
	essence := func(unit []byte) (lines []string) {
		for line := range strings.Lines(string(unit)) {
			line = strings.TrimSpace(line)
			if line != "" && line[0] != '#' && line[0] != ';' && !strings.HasPrefix(line, versionKey) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	return slices.Equal(essence(a), essence(b))
}

// files finds where the manager looks. XDG_CONFIG_HOME of this process may be
// another than the manager's, so it is the manager who is asked.
func (s systemdService) files(ctx context.Context, o SystemdOptions) (unitFiles, error) {
	service := s.Service
	if !s.user {
		service.Env = maps.Clone(s.Env)
		// Root's directories, which sudo may have kept, aren't the user's.
		maps.DeleteFunc(service.Env, func(name, _ string) bool { return name == "HOME" || strings.HasPrefix(name, "XDG_") })
	}
	text, err := SystemdUnit(service, o)
	if err != nil {
		return unitFiles{}, err
	}
	f := unitFiles{own: filepath.Join(s.host.system, s.unit()), want: []byte(text)}
	if s.user {
		dirs, err := s.unitPath(ctx)
		if err != nil {
			return unitFiles{}, s.noManager(err)
		}
		if f.own, f.packaged = s.pick(dirs); f.own == "" {
			return unitFiles{}, fmt.Errorf("systemd names no directory for a user's own units among %q", dirs)
		}
	}
	if _, err := os.Lstat(f.own); err == nil {
		if f.have, err = readSmall(f.own); err != nil {
			return unitFiles{}, err
		}
		f.have = append([]byte{}, f.have...) // an empty file is there as well
	}
	if f.packaged != "" {
		packaged, err := readSmall(f.packaged)
		if err == nil && sameUnit(packaged, f.want) {
			f.want = nil
		}
	}
	return f, nil
}

// pick takes the user's own file and the first of the others that is there. What
// stands below /run is gone at the next boot, and what is beside us in
// user.control belongs to systemctl.
func (s systemdService) pick(dirs []string) (own, packaged string) {
	for _, dir := range dirs {
		file := filepath.Join(dir, s.unit())
		switch {
		case filepath.Base(dir) != "user" || strings.HasPrefix(dir, "/run/") || strings.HasPrefix(dir, s.host.runtime+"/"):
		case own == "":
			own = file
		default:
			if _, err := os.Stat(file); err == nil {
				return own, file
			}
		}
	}
	return own, ""
}

// noManager says what to do where no user manager answers.
func (s systemdService) noManager(err error) error {
	return fmt.Errorf("no systemd user manager answers; log in as %s (su and sudo don't start one),"+
		" or have one kept from boot on: intermission service install --linger, or by an administrator: sudo loginctl enable-linger %s (%w)", s.host.name, s.host.name, err)
}

func (s systemdService) status(ctx context.Context) (ServiceStatus, error) {
	st := ServiceStatus{Kind: s.kind}
	if s.user {
		st.Lingering = s.host.lingers(s.host.name)
	}
	u, err := s.ask(ctx)
	if err != nil {
		if s.user {
			return s.statusWithout(st, err)
		}
		return st, err
	}
	st.Running, st.PID, st.State, st.Program, st.Definition = u.running(), u.pid, u.words(), u.program, u.fragment
	if u.load == stateMasked {
		st.Installed = st.Running
		return st, nil
	}
	st.Enabled = u.file == "enabled"
	o, ours := s.theirs(ctx, u)
	if !ours {
		return st, nil
	}
	st.User = o.User
	files, err := s.files(ctx, o)
	if err != nil {
		return st, err
	}
	content, err := readSmall(u.fragment)
	if u.fragment == "" {
		content, err = files.have, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return st, err
	}
	st.Version, _ = unitVersion(content)
	// What a package brought, and nobody enabled or started, isn't installed for this user.
	st.Installed = files.have != nil || st.Enabled || st.Running
	// A version stamp that is behind is no other definition: the program is asked for its own.
	st.Current = u.fragment != "" && !u.reload && sameUnit(files.have, files.want) && (files.have == nil) == (files.want == nil)
	st.Comes = u.comes()
	if u.fails() {
		st.Failure = s.said(ctx)
	}
	return st, nil
}

// theirs tells whether the unit is this user's, and for whom it is. A system unit
// is shown to the user whose it is, and to root.
func (s systemdService) theirs(ctx context.Context, u unitState) (SystemdOptions, bool) {
	if s.user {
		return SystemdOptions{}, true
	}
	if u.user == "" || s.host.uid != 0 && u.user != s.host.name {
		return SystemdOptions{}, false
	}
	a, err := s.host.lookupUser(ctx, u.user)
	if err != nil {
		a = account{name: u.user, home: "/nonexistent"} // the user is gone, and the unit can go too
	}
	return SystemdOptions{User: a.name, Home: a.home}, true
}

// statusWithout is the status where no user manager answers: it doesn't run, and the
// usual file tells whether it is installed.
func (s systemdService) statusWithout(st ServiceStatus, cause error) (ServiceStatus, error) {
	st.State, st.Unreachable = "not running: "+s.noManager(cause).Error(), true
	config := s.host.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(s.host.getenv("HOME"), ".config")
	}
	dir := filepath.Join(config, "systemd", "user")
	if _, err := os.Stat(filepath.Join(dir, "default.target.wants", s.unit())); err == nil {
		st.Enabled, st.Installed = true, true
	}
	if content, err := readSmall(filepath.Join(dir, s.unit())); err == nil {
		st.Version, st.Installed = unitVersion(content)
		st.Definition = filepath.Join(dir, s.unit())
	}
	return st, nil
}

// start starts the unit and waits for READY=1. A state of failure is forgotten
// first: with it goes the count that would refuse the start.
func (s systemdService) start(ctx context.Context) error {
	u, err := s.ask(ctx)
	if err != nil {
		if s.user {
			err = s.noManager(err)
		}
		return err
	}
	if !s.user && s.host.uid != 0 {
		return s.awaitSystem(ctx, u)
	}
	if u.reload { // also under one that runs: its next start is by the new definition
		if err := s.reload(ctx); err != nil {
			return err
		}
	}
	if u.active == "active" {
		return nil
	}
	_, _ = s.run(ctx, systemctlLimit, "reset-failed", s.unit()) // of a unit that isn't loaded it is an error
	if _, err := s.run(ctx, serviceStartLimit, "start", s.unit()); err != nil {
		return s.explain(ctx, err)
	}
	return nil
}

// awaitSystem waits for a system unit that root's manager starts by itself, as it does
// after a supervisor has handed over. Only root can start one that is down.
func (s systemdService) awaitSystem(ctx context.Context, u unitState) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, serviceStartLimit, errors.New("it doesn't get ready"))
	defer cancel()
	for u.active != "active" {
		if u.active == "inactive" || u.active == "failed" {
			return fmt.Errorf("the unit is %s, and a system unit is root's to start: sudo intermission service start", u.words())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond): // nothing tells those who aren't root
		}
		if u, err = s.ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

// explain adds to systemctl's error, which points to other commands, what those would tell.
func (s systemdService) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	u, cannot := s.ask(ctx)
	if cannot != nil {
		return err
	}
	// Its own first sentence; the rest of it names commands to look for more.
	first, _, _ := strings.Cut(err.Error(), " See ")
	if strings.Contains(first, "authentication required") {
		return fmt.Errorf("%s A system unit is root's: use sudo", first)
	}
	if u.fails() {
		if said := s.said(ctx); said != "" {
			return fmt.Errorf("it said: %s (the unit is %s)", said, u.words())
		}
	}
	if strings.Contains(first, "canceled") {
		return fmt.Errorf("another command on the service came in between (the unit is %s); see: intermission service status", u.words())
	}
	return fmt.Errorf("%s The unit is %s", first, u.words())
}

// said is the last that the supervisor told of itself.
func (s systemdService) said(ctx context.Context) string {
	said := s.lastWords(ctx, s.unit())
	if said == "" {
		said = s.lastLogged()
	}
	return strings.TrimPrefix(said, s.Name+": ")
}

// lastLogged is the last line of our own log.
func (s systemdService) lastLogged() string {
	if !s.user {
		return ""
	}
	return s.logTail()
}

func (s systemdService) stop(ctx context.Context) error {
	if _, err := s.ask(ctx); err != nil {
		if s.user {
			err = s.noManager(err)
		}
		return err
	}
	if _, err := s.run(ctx, ServiceStopLimit+systemctlLimit, "stop", s.unit()); err != nil {
		return s.explain(ctx, err)
	}
	u, err := s.ask(ctx)
	switch {
	case err != nil:
		return err
	case u.running():
		return fmt.Errorf("it runs again, as process %d", u.pid)
	case u.result == "timeout":
		return fmt.Errorf("the supervisor didn't end within %.0f s and was killed; its server may still run, and the next supervisor adopts it", ServiceStopLimit.Seconds())
	}
	return nil
}

func (s systemdService) reload(ctx context.Context) error {
	_, err := s.run(ctx, systemctlLimit, "daemon-reload")
	return err
}

// waitForManager waits until the user manager that lingering starts answers.
func (s *systemdService) waitForManager(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, systemctlLimit)
	defer cancel()
	for {
		s.systemctl = s.host.systemctl(true) // its directory may have come
		_, err := s.unitPath(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond): // nothing tells that it is up
		}
	}
}
