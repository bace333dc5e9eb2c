package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
)

// On Linux nothing of kardianos/service is used: its systemd part writes below
// $HOME/.config whatever the manager reads, refuses to install over an older unit,
// enables before the manager has read the unit, leaves the file when that fails,
// uninstalls without a stop, takes a service that is stopping for none, and runs
// systemctl without a time limit. What is left of it is the name of the command.

// serviceHost is what the service needs to know of the system; tests have their own.
type serviceHost struct {
	uid        int
	name       string // of the user
	booted     string // is there where systemd runs the system (sd_booted(3))
	system     string // the administrator's system units
	lingering  string // has a file for each user whose manager runs from boot on
	runtime    string // directory of all users' runtime directories
	getenv     func(string) string
	lookupUser func(context.Context, string) (account, error)
}

// account is a user of the system.
type account struct{ name, uid, home string }

func linuxHost() serviceHost {
	h := serviceHost{
		uid: os.Geteuid(), name: os.Getenv("USER"),
		booted: "/run/systemd/system", system: "/etc/systemd/system", lingering: "/var/lib/systemd/linger", runtime: "/run/user",
		getenv: os.Getenv, lookupUser: lookupUser,
	}
	if me, err := user.Current(); err == nil {
		h.name = me.Username
	}
	return h
}

// lookupUser finds a user. Without cgo Go knows those of /etc/passwd only; getent
// knows a directory service's too.
func lookupUser(ctx context.Context, name string) (account, error) {
	if u, err := user.Lookup(name); err == nil {
		return account{u.Username, u.Uid, u.HomeDir}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, systemctlLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", "passwd", "--", name).Output()
	f := strings.Split(strings.TrimSpace(string(out)), ":")
	if err != nil || len(f) != 7 {
		return account{}, fmt.Errorf("there is no user %q", name)
	}
	return account{f[0], f[2], f[5]}, nil
}

// keeper is one way to keep the service.
type keeper interface {
	install(ctx context.Context, o ServiceOptions) (ServiceReport, error)
	uninstall(ctx context.Context) (ServiceReport, error)
	start(ctx context.Context) error
	stop(ctx context.Context) error
	status(ctx context.Context) (ServiceStatus, error)
}

func (s Service) install(ctx context.Context, o ServiceOptions) (ServiceReport, error) {
	report, err := linuxHost().install(ctx, s, o)
	if err != nil {
		return report, fmt.Errorf("cannot install the service: %w", err)
	}
	return report, nil
}

func (h serviceHost) install(ctx context.Context, s Service, o ServiceOptions) (ServiceReport, error) {
	k, err := h.choose(s, o)
	if err != nil {
		return ServiceReport{Done: []string{}, Next: []string{}}, err
	}
	return k.install(ctx, o)
}

// choose takes the way that fits the system and the account.
func (h serviceHost) choose(s Service, o ServiceOptions) (keeper, error) {
	_, err := os.Stat(h.booted)
	systemd := err == nil
	kind := o.Kind
	switch {
	case kind == "" && o.User != "":
		kind = SystemdSystem
	case kind == "" && !systemd:
		kind = DesktopLogin
	case kind == "":
		kind = SystemdUser
	}
	switch kind {
	case SystemdUser, SystemdSystem:
		if !systemd {
			return nil, fmt.Errorf("a %s needs systemd, which doesn't run this system", kind)
		}
	case DesktopLogin:
	default:
		return nil, fmt.Errorf("there is no %s on Linux", kind)
	}
	switch {
	case kind == SystemdSystem && h.uid != 0:
		return nil, errors.New("a system unit is installed by root: sudo intermission service install --system --user " + h.name)
	case kind == SystemdSystem && o.User == "":
		return nil, errors.New("a system unit needs the user whose sessions they are: --system --user NAME")
	case kind != SystemdSystem && h.uid == 0:
		return nil, errors.New("the service never runs as root: run this as the user whose sessions they are, without sudo;" +
			" or for a system unit: sudo intermission service install --system --user NAME")
	case kind != SystemdSystem && o.User != "" && o.User != h.name:
		return nil, fmt.Errorf("a %s is for the user who installs it, not for %s", kind, o.User)
	case kind != SystemdUser && o.Linger:
		return nil, fmt.Errorf("lingering is for a systemd user unit; a %s has no such thing", kind)
	}
	return h.keeper(s, kind), nil
}

func (h serviceHost) keeper(s Service, kind ServiceKind) keeper {
	if kind == DesktopLogin {
		return desktopLogin{s, h}
	}
	return newSystemd(s, h, kind)
}

// installed finds what is installed for this user, the manager's own before the
// desktop's. Without any it gives the status of what would be installed.
func (h serviceHost) installed(ctx context.Context, s Service) (keeper, ServiceStatus, error) {
	kinds := []ServiceKind{SystemdUser, SystemdSystem, DesktopLogin}
	if h.uid == 0 {
		kinds = []ServiceKind{SystemdSystem}
	}
	if _, err := os.Stat(h.booted); err != nil {
		kinds = []ServiceKind{DesktopLogin}
	}
	var first ServiceStatus
	for i, kind := range kinds {
		k := h.keeper(s, kind)
		st, err := k.status(ctx)
		if err != nil && i == 0 {
			return nil, ServiceStatus{}, err
		}
		if err == nil && st.Installed {
			return k, st, nil
		}
		if i == 0 {
			first = st
		}
	}
	first.Kind = ""
	return nil, first, nil
}

func (s Service) uninstall(ctx context.Context) (ServiceReport, error) {
	return linuxHost().uninstall(ctx, s)
}

// uninstall removes each kind that is installed.
func (h serviceHost) uninstall(ctx context.Context, s Service) (ServiceReport, error) {
	report := ServiceReport{Done: []string{}, Next: []string{}}
	for {
		k, st, err := h.installed(ctx, s)
		if err == nil && k == nil && report.Kind == "" {
			return report, ErrNotInstalled
		}
		if err == nil && k == nil {
			return report, nil
		}
		if err == nil && report.Kind == st.Kind {
			err = fmt.Errorf("%s is there again", st.Definition)
		}
		var one ServiceReport
		if err == nil {
			one, err = k.uninstall(ctx)
		}
		report.Done, report.Next = append(report.Done, one.Done...), append(report.Next, one.Next...)
		if err != nil {
			return report, fmt.Errorf("cannot uninstall the service: %w", err)
		}
		report.Kind = st.Kind
	}
}

func (s Service) start(ctx context.Context) error {
	return linuxHost().act(ctx, s, "start", keeper.start)
}

func (s Service) stop(ctx context.Context) error {
	return linuxHost().act(ctx, s, "stop", keeper.stop)
}

func (h serviceHost) act(ctx context.Context, s Service, what string, act func(keeper, context.Context) error) error {
	k, st, err := h.installed(ctx, s)
	if err == nil && k == nil {
		if st.State == stateMasked {
			err = errors.New(st.State + ": nothing starts it; to allow it: systemctl --user unmask " + s.Name)
		} else {
			return ErrNotInstalled
		}
	}
	if err == nil {
		err = act(k, ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot %s the service: %w", what, err)
	}
	return nil
}

func (s Service) status(ctx context.Context) (ServiceStatus, error) {
	_, st, err := linuxHost().installed(ctx, s)
	if err != nil {
		return st, fmt.Errorf("cannot tell how the service is: %w", err)
	}
	return st, nil
}

// lingers tells whether the user's manager runs from boot on. logind keeps it as
// the presence of a file, which is there to read when no logind answers.
func (h serviceHost) lingers(name string) bool {
	_, err := os.Stat(filepath.Join(h.lingering, name))
	return err == nil && name != ""
}

// ServiceOutputLost says that what a service prints is of no use: the journal has it.
const ServiceOutputLost = false

// Removable says why a service of this kind can't be taken away by who asks; here
// nothing keeps them from it.
func Removable(ServiceKind) error { return nil }
