package platform

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kardianos/service"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
)

// scmService is a service that runs under the user's own account.
type scmService struct {
	Service
	account account
}

// open opens the service with no more access than is asked for.
func (s scmService) open(access uint32) (*mgr.Service, error) {
	name, err := windows.UTF16PtrFromString(s.Name)
	if err != nil {
		return nil, err
	}
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the service manager: %w", err)
	}
	defer func() { _ = windows.CloseServiceHandle(m) }()
	h, err := windows.OpenService(m, name, access)
	switch {
	case errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST):
		return nil, ErrNotInstalled
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return nil, fmt.Errorf("cannot open the service %s: %w; open a prompt as administrator for it", s.Name, err)
	case err != nil:
		return nil, fmt.Errorf("cannot open the service %s: %w", s.Name, err)
	}
	return &mgr.Service{Name: s.Name, Handle: h}, nil
}

func (s scmService) status(context.Context) (ServiceStatus, error) {
	h, err := s.open(windows.SERVICE_QUERY_CONFIG | windows.SERVICE_QUERY_STATUS)
	if errors.Is(err, ErrNotInstalled) {
		return ServiceStatus{}, nil
	}
	if err != nil {
		return ServiceStatus{}, err
	}
	defer func() { _ = h.Close() }()
	d, owner, err := s.have(h)
	if err != nil || !s.account.is(owner) {
		return ServiceStatus{}, err // another user's is none of ours
	}
	now, err := h.Query()
	if err != nil {
		return ServiceStatus{}, fmt.Errorf("cannot ask for the state of the service %s: %w", s.Name, err)
	}
	st := ServiceStatus{
		Installed: true, Kind: WindowsService, Definition: s.Name, Version: d.version, Current: d.equal(s.want()),
		Enabled: d.start == mgr.StartAutomatic, Running: now.State != svc.Stopped, State: serviceState(now.State),
		PID: int(now.ProcessId), Lingering: true,
	}
	if argv, err := windows.DecomposeCommandLine(d.commandLine); err == nil && len(argv) > 0 {
		st.Program = argv[0]
	}
	return st, nil
}

// serviceState is a state in the words of Windows' own tools.
func serviceState(s svc.State) string {
	return map[svc.State]string{
		svc.Stopped: "stopped", svc.StartPending: "start pending", svc.StopPending: "stop pending", svc.Running: "running",
		svc.ContinuePending: "continue pending", svc.PausePending: "pause pending", svc.Paused: "paused",
	}[s]
}

func (s scmService) install(ctx context.Context, o ServiceOptions, report *ServiceReport) error {
	if !elevated() {
		return errors.New("open a prompt as administrator for it, or take a logon task, which needs none: intermission service install --task")
	}
	h, err := s.open(windows.SERVICE_ALL_ACCESS)
	if errors.Is(err, ErrNotInstalled) {
		return s.create(o, report)
	}
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	had, owner, err := s.have(h)
	if err != nil {
		return err
	}
	if !s.account.is(owner) {
		return fmt.Errorf("the service %s is there already, and runs as %s; take a logon task: intermission service install --task", s.Name, owner)
	}
	if had.equal(s.want()) && had.version == s.Version {
		report.Done = append(report.Done, "The service "+s.Name+" is installed and current.")
		return nil
	}
	if err := s.update(h, s.want(), report); err != nil {
		return errors.Join(err, s.update(h, had, report))
	}
	report.Done = append(report.Done, "Updated the service "+s.Name+"; it runs as "+owner+" still. After a change of your password: intermission service uninstall, then install.")
	return nil
}

// create makes the service. When it fails, nothing is left.
func (s scmService) create(o ServiceOptions, report *ServiceReport) (err error) {
	if o.AskPassword == nil {
		return fmt.Errorf("a service needs the password of %s, and nobody can be asked; run this in a terminal", s.account)
	}
	password, err := o.AskPassword(fmt.Sprintf("Password of %s, for Windows to start the service with: ", s.account))
	if err != nil {
		return fmt.Errorf("cannot ask for the password: %w", err)
	}
	if err := s.account.checkPassword(password); err != nil {
		return err
	}
	revoke, err := s.account.grantServiceRight()
	if err != nil {
		return err
	}
	made := false
	defer func() {
		if err != nil {
			if made {
				err = errors.Join(err, s.remove(context.Background()))
			}
			err = errors.Join(err, revoke())
		}
	}()
	// Without EnvVars: they would be written first, and stay when the service can't be made.
	k, err := service.New(nil, &service.Config{
		Name: s.Name, DisplayName: s.Title, Description: s.Comment, UserName: s.account.String(),
		Executable: s.Argv[0], Arguments: s.Argv[1:],
		Option: service.KeyValue{"Password": password, service.StartType: service.ServiceStartAutomatic},
	})
	if err != nil {
		return err
	}
	if err := k.Install(); err != nil {
		return fmt.Errorf("cannot create the service %s: %w", s.Name, err)
	}
	made = true
	h, err := s.open(windows.SERVICE_ALL_ACCESS)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	if err := s.update(h, s.want(), report); err != nil {
		return err
	}
	report.Done = append(report.Done,
		fmt.Sprintf("Let %s log on as a service.", s.account),
		fmt.Sprintf("Made the service %s: it runs as %s from the computer's start on.", s.Name, s.account))
	return nil
}

func (s scmService) remove(context.Context) error {
	const delete = 0x10000 // DELETE of winnt.h
	h, err := s.open(delete)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	if err := h.Delete(); err != nil && !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
		return err
	}
	_ = eventlog.Remove(s.Name) // where it is absent nothing is left either
	return nil
}

func (s scmService) start(ctx context.Context) error {
	h, err := s.open(windows.SERVICE_START | windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	if leaves(ctx, func() bool { st, err := h.Query(); return err == nil && st.State == svc.Running }) {
		if st, err := h.Query(); err == nil && st.State == svc.StopPending {
			if err := untilState(ctx, h, svc.Stopped); err != nil {
				return err
			}
		}
		// Its recovery may have started it again meanwhile.
		if err := h.Start(); err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
			if errors.Is(err, windows.ERROR_SERVICE_LOGON_FAILED) {
				return fmt.Errorf("%w; when your password has changed: intermission service uninstall, then install", err)
			}
			return err
		}
	}
	return untilState(ctx, h, svc.Running)
}

func (s scmService) stop(ctx context.Context) error {
	h, err := s.open(windows.SERVICE_STOP | windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	st, err := h.Query()
	if err == nil && st.State == svc.StartPending { // the manager refuses a stop until then
		err = untilState(ctx, h, svc.Running)
	}
	if err != nil {
		return err
	}
	_, err = h.Control(svc.Stop)
	if errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return nil
	}
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL) { // it is at it already
		return err
	}
	return untilState(ctx, h, svc.Stopped)
}

// statePoll is how often the manager is asked for a state: what tells of it by itself
// needs more access than a user has.
const statePoll = 100 * time.Millisecond

// untilState waits until the service is in the state, for as long as it gets on.
func untilState(ctx context.Context, h *mgr.Service, want svc.State) error {
	tick := time.NewTicker(statePoll)
	defer tick.Stop()
	var p progress
	for {
		st, err := h.Query()
		switch {
		case err != nil:
			return err
		case st.State == want:
			return nil
		case st.State == svc.Stopped:
			return fmt.Errorf("it has ended (exit status %d, its own %d); see: intermission logs, intermission doctor", st.Win32ExitCode, st.ServiceSpecificExitCode)
		case p.late(time.Now(), st.CheckPoint, time.Duration(st.WaitHint)*time.Millisecond):
			return fmt.Errorf("it gets on no more (%s, process %d)", serviceState(st.State), st.ProcessId)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
