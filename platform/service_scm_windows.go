package platform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/kardianos/service"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
)

// scmService is a service that runs under the user's own account.
type scmService struct {
	Service
	account account
}

// Below HKEY_LOCAL_MACHINE; what stands there goes with the service.
const servicesKey = `SYSTEM\CurrentControlSet\Services\`

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

// scmDefinition is what of a service's definition is ours.
type scmDefinition struct {
	commandLine, title, comment, version string
	start                                uint32
	env                                  []string // NAME=value, sorted
}

// want is the definition as Install writes it.
func (s scmService) want() scmDefinition {
	d := scmDefinition{title: s.Title, comment: s.Comment, version: s.Version, start: mgr.StartAutomatic}
	for i, arg := range s.Argv {
		if i > 0 {
			d.commandLine += " "
		}
		d.commandLine += syscall.EscapeArg(arg)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		d.env = append(d.env, k+"="+s.Env[k])
	}
	return d
}

func (d scmDefinition) equal(other scmDefinition) bool {
	return d.commandLine == other.commandLine && d.title == other.title && d.comment == other.comment &&
		d.version == other.version && d.start == other.start && slices.Equal(d.env, other.env)
}

// have reads the definition, and whose the service is.
func (s scmService) have(h *mgr.Service) (d scmDefinition, owner string, err error) {
	var c *windows.QUERY_SERVICE_CONFIG
	buffer, err := grown(func(p *byte, size uint32, needed *uint32) error {
		c = (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(p))
		return windows.QueryServiceConfig(h.Handle, c, size, needed)
	})
	if err != nil {
		return d, "", fmt.Errorf("cannot read the definition of the service %s: %w", s.Name, err)
	}
	d = scmDefinition{
		commandLine: windows.UTF16PtrToString(c.BinaryPathName), title: windows.UTF16PtrToString(c.DisplayName), start: c.StartType,
	}
	owner = windows.UTF16PtrToString(c.ServiceStartName)
	var about *windows.SERVICE_DESCRIPTION
	more, err := grown(func(p *byte, size uint32, needed *uint32) error {
		about = (*windows.SERVICE_DESCRIPTION)(unsafe.Pointer(p))
		return windows.QueryServiceConfig2(h.Handle, windows.SERVICE_CONFIG_DESCRIPTION, p, size, needed)
	})
	if err == nil && about.Description != nil {
		d.comment = windows.UTF16PtrToString(about.Description)
	}
	runtime.KeepAlive(buffer)
	runtime.KeepAlive(more)
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+s.Name, registry.QUERY_VALUE)
	if err != nil {
		return d, owner, nil
	}
	defer func() { _ = k.Close() }()
	d.env, _, _ = k.GetStringsValue(environmentValue)
	d.version, _, _ = k.GetStringValue(versionValue)
	slices.Sort(d.env)
	return d, owner, nil
}

// grown calls query with a buffer that is large enough for its answer.
func grown(query func(p *byte, size uint32, needed *uint32) error) ([]byte, error) {
	size := uint32(1 << 10)
	for {
		buffer := make([]byte, size)
		needed := size
		err := query(&buffer[0], size, &needed)
		if err == nil || !errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER) || needed <= size {
			return buffer, err
		}
		size = needed
	}
}

// Values of the service's key: the variables that the manager gives it, and what is ours.
const (
	environmentValue = "Environment"
	versionValue     = "IntermissionVersion"
)

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
	if had.equal(s.want()) {
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

// Recovery: after a first end that was no stop at once, then more slowly. A handover
// is such an end too, so that the count starts anew soon, in seconds.
var (
	recovery = []mgr.RecoveryAction{
		{Type: mgr.ServiceRestart, Delay: time.Second},
		{Type: mgr.ServiceRestart, Delay: 10 * time.Second},
		{Type: mgr.ServiceRestart, Delay: time.Minute},
	}
	recoveryReset uint32 = 600
)

// update writes the definition d over what is there, account and password excepted.
func (s scmService) update(h *mgr.Service, d scmDefinition, report *ServiceReport) error {
	var words [3]*uint16
	for i, text := range []string{d.commandLine, d.title, d.comment} {
		word, err := windows.UTF16PtrFromString(text)
		if err != nil {
			return err
		}
		words[i] = word
	}
	err := windows.ChangeServiceConfig(h.Handle, windows.SERVICE_NO_CHANGE, d.start, windows.SERVICE_NO_CHANGE, words[0], nil, nil, nil, nil, nil, words[1])
	if err == nil {
		about := windows.SERVICE_DESCRIPTION{Description: words[2]}
		err = windows.ChangeServiceConfig2(h.Handle, windows.SERVICE_CONFIG_DESCRIPTION, (*byte)(unsafe.Pointer(&about)))
	}
	if err != nil {
		return fmt.Errorf("cannot define the service %s: %w", s.Name, err)
	}
	if err := s.writeValues(d); err != nil {
		return fmt.Errorf("cannot write the environment of the service %s: %w", s.Name, err)
	}
	limit := uint32(ServiceStopLimit.Milliseconds()) // SERVICE_PRESHUTDOWN_INFO
	if err := windows.ChangeServiceConfig2(h.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO, (*byte)(unsafe.Pointer(&limit))); err != nil {
		return fmt.Errorf("cannot give the service %s time to end at the computer's shutdown: %w", s.Name, err)
	}
	if err := s.allowUser(h); err != nil {
		return fmt.Errorf("cannot let %s start and stop the service %s: %w", s.account, s.Name, err)
	}
	// It works without, less well.
	err = h.SetRecoveryActions(recovery, recoveryReset)
	if err == nil { // an exit status is a failure too, or a handover would end the service
		err = h.SetRecoveryActionsOnNonCrashFailures(true)
	}
	if err != nil {
		report.Next = append(report.Next, fmt.Sprintf("Windows doesn't start the service again by itself when it fails: %v", err))
	}
	return nil
}

func (s scmService) writeValues(d scmDefinition) error {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+s.Name, registry.SET_VALUE)
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }()
	if err := k.SetStringValue(versionValue, d.version); err != nil {
		return err
	}
	if len(d.env) > 0 {
		return k.SetStringsValue(environmentValue, d.env)
	}
	if err := k.DeleteValue(environmentValue); !errors.Is(err, registry.ErrNotExist) {
		return err
	}
	return nil
}

var procSetServiceSecurity = advapi32.NewProc("SetServiceObjectSecurity")

// allowUser lets the account start and stop its service without an administrator;
// otherwise the list is the one that Windows gives a new service.
func (s scmService) allowUser(h *mgr.Service) error {
	sd, err := windows.SecurityDescriptorFromString("D:(A;;CCLCSWRPWPDTLOCRRC;;;SY)(A;;CCDCLCSWRPWPDTLOCRSDRCWDWO;;;BA)" +
		"(A;;CCLCSWLOCRRC;;;IU)(A;;CCLCSWLOCRRC;;;SU)(A;;CCLCSWRPWPLOCRRC;;;" + s.account.sid.String() + ")")
	if err != nil {
		return err
	}
	ok, _, err := procSetServiceSecurity.Call(uintptr(h.Handle), windows.DACL_SECURITY_INFORMATION, uintptr(unsafe.Pointer(sd)))
	if ok != 0 {
		return nil
	}
	return err
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
